//! Hosts of a scenario file.

use longhaul_proto::time::Span;

use super::section::{FileError, Section};
use crate::scenario::{Disk, Host, Pace, Stalls};

pub(super) fn describe(host: &mut Host, table: &Section<'_>) -> Result<(), FileError> {
    if let Some(rate) = table.rate("nic")? {
        host.nic = Some(rate);
    }
    host.nic_queue = table.bytes("nic-queue")?.or(host.nic_queue);
    host.send_buffer = table.bytes("send-buffer")?.unwrap_or(host.send_buffer);
    let pace = |pace: &mut Pace, packets: &str, rate: &str| -> Result<(), FileError> {
        if let Some(number) = table.number(packets)? {
            if number <= 0.0 {
                let what = format!("'{packets}' in {}: not a positive number", table.title);
                return Err(table.error(packets, what));
            }
            pace.packets = Some(number);
        }
        pace.rate = table.rate(rate)?.or(pace.rate);
        Ok(())
    };
    pace(&mut host.sends, "sends-packets", "sends-rate")?;
    pace(&mut host.receives, "receives-packets", "receives-rate")?;
    host.report_cost = table.span("report-cost")?.unwrap_or(host.report_cost);
    if let Some(bytes) = table.bytes("socket-buffer")? {
        host.socket_buffer = bytes;
    }
    host.memory = table.bytes("memory")?.or(host.memory);
    if let Some(rate) = table.rate("disk-rate")? {
        host.disk = Some(Disk { rate, stalls: host.disk.and_then(|disk| disk.stalls) });
    }
    let stalls = stalls(table)?;
    match (&mut host.disk, stalls) {
        (Some(disk), Some(stalls)) => disk.stalls = Some(stalls),
        (None, Some(_)) => {
            let what = format!("{} has stalls, but no 'disk-rate'", table.title);
            return Err(table.error("disk-stall", what));
        }
        (_, None) => {}
    }
    Ok(())
}

fn stalls(table: &Section<'_>) -> Result<Option<Stalls>, FileError> {
    let both: [Option<Span>; 2] = [table.span("disk-stall")?, table.span("disk-stall-every")?];
    match both {
        [Some(length), Some(every)] => Ok(Some(Stalls { every, length })),
        [None, None] => Ok(None),
        [Some(_), None] => Err(table.missing("disk-stall-every")),
        [None, Some(_)] => Err(table.missing("disk-stall")),
    }
}
