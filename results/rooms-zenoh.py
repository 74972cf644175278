"""The loads of `figures.sh rooms` with zenoh: a router, subscribers and senders over TCP on loopback.

Needs `pip install eclipse-zenoh`. Each subscriber has its own client session. All subscribers and senders
run in this process, whose speed is limited by Python's callbacks; so the router's CPU time has its own column.
"""

import os
import struct
import subprocess
import sys
import threading
import time

import zenoh

SENDERS, SIZE, ADDRESS = 10, 100, "tcp/127.0.0.1:17447"


def session(mode):
    config = zenoh.Config()
    config.insert_json5("mode", f'"{mode}"')
    config.insert_json5("scouting/multicast/enabled", "false")
    end = "listen" if mode == "router" else "connect"
    config.insert_json5(f"{end}/endpoints", f'["{ADDRESS}"]')
    config.insert_json5("transport/unicast/max_sessions", "2000")
    config.insert_json5("transport/shared_memory/enabled", "false")
    return zenoh.open(config)


def cpu(process):
    fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def route():
    router = session("router")
    print("ready", flush=True)
    sys.stdin.read()
    router.close()


def bear(router, subscribers, sessions, rate, seconds):
    delays = []

    def take(sample):
        sent = struct.unpack_from(">d", sample.payload.to_bytes())[0]
        delays.append(time.monotonic() - sent)

    heard = [each.declare_subscriber("load", take) for each in sessions]
    senders = [session("client") for _ in range(SENDERS)]
    time.sleep(2)  # zenoh cannot report that the router knows all subscribers
    before, own, start = cpu(router), cpu(os.getpid()), time.monotonic()

    def send(sender):
        publisher, share, sent = sender.declare_publisher("load"), rate / SENDERS, 0
        while sent < share * seconds:
            while sent < min(share * seconds, share * (time.monotonic() - start)):
                publisher.put(struct.pack(">d", time.monotonic()).ljust(SIZE, b"\0"))
                sent += 1
            time.sleep(0.002)

    threads = [threading.Thread(target=send, args=(sender,)) for sender in senders]
    [each.start() for each in threads]
    [each.join() for each in threads]
    came = -1
    while came != len(delays):  # waits for queued messages
        came = len(delays)
        time.sleep(1)
    used = ((cpu(router) - before) * 1e6 / came, (cpu(os.getpid()) - own) * 1e6 / came)
    delays.sort()
    at = lambda share: delays[min(int(len(delays) * share), len(delays) - 1)] * 1e3
    lost = 100 - 100 * len(delays) / (rate * seconds * subscribers)
    print(
        f"| zenoh | {subscribers} | {rate} | {len(delays)} | {lost:.2f} % | {at(0.5):.1f} | {at(0.99):.1f} | "
        f"{at(1):.1f} | {used[0]:.2f} | {used[1]:.2f} |",
        flush=True,
    )
    [each.undeclare() for each in heard]
    [each.close() for each in senders]


def main():
    router = subprocess.Popen([sys.executable, __file__, "router"], stdin=-1, stdout=-1)
    router.stdout.readline()
    for subscribers, loads in ((1000, [(100, 10)]), (200, [(1000, 10), (10000, 5), (100, 5)])):
        sessions = [session("client") for _ in range(subscribers)]
        for rate, seconds in loads:
            bear(router.pid, subscribers, sessions, rate, seconds)
        [each.close() for each in sessions]
    router.stdin.close()
    router.wait()


route() if sys.argv[1:] == ["router"] else main()
