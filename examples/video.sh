#!/bin/sh
# H.264 video at 50 Mbit/s over a round trip of 300 ms with 2 % of loss, between two emulated hosts.
#
#   examples/video.sh FILM.ts [RECEIVE FLAGS]
#
# The film is MPEG-TS of constant rate. If FILM.ts is missing, ffmpeg makes a film of 5 s.
# RECEIVE FLAGS are flags of `stream receive`. Environment variables: LONGHAUL is the binary,
# DEADLINE the longest time from reading a frame to its delivery, WAY the method of `stream send`
# against losses.
set -eu
longhaul=${LONGHAUL:-longhaul} film=$(realpath "$1")
shift
LONGHAUL_CONFIG_DIR=$(mktemp -d)
export LONGHAUL_CONFIG_DIR
trap 'rm -rf "$LONGHAUL_CONFIG_DIR"' EXIT
[ -e "$film" ] || ffmpeg -loglevel error -f lavfi -i testsrc2=size=1280x720:rate=50 -t 5 \
    -c:v libx264 -preset ultrafast -b:v 46M -minrate 46M -maxrate 46M -bufsize 4M \
    -x264-params nal-hrd=cbr -f mpegts -muxrate 50008000 "$film"
id=$("$longhaul" id)
ready="until [ -s '$LONGHAUL_CONFIG_DIR/ready' ]; do sleep 0.1; done"
# A frame of 125,020 bytes is 665 MPEG-TS packets: 50 frames a second are 50 Mbit/s.
"$longhaul" emulate --rate 1G --rtt 300ms --loss 2% \
    --run b "'$longhaul' reflect --allow $id,stream=rw > '$LONGHAUL_CONFIG_DIR/ready'" \
    --run a "$ready; '$longhaul' stream send --frame 125020 --fps 50 \
        --deadline ${DEADLINE:-400ms} --way ${WAY:-auto} --receivers 1 --accept-new '$film' lh://b/film" \
    --run b "$ready; '$longhaul' stream receive $* -o '$film.received' --accept-new lh://b/film"
