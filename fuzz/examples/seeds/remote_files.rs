//! Messages between clients and servers of a remote file.

use longhaul_files::CHUNK;
use longhaul_transfer::control::file::{self, Change, FileAsk, FileOpened, FileRange};
use longhaul_transfer::session::frame;
use longhaul_transfer::session::hello::{Hello, VERSIONS};
use prost::Message as _;

pub(super) fn reading(who: u8, path: &[u8], (offset, len): (u64, u64)) -> Vec<u8> {
    let mut bytes = vec![who];
    let hello = Hello { service: file::SERVICE.to_owned(), needs: 1, ..Hello::new(&VERSIONS) };
    frame::encode(&hello, &mut bytes).expect("it is short");
    let ranges = vec![FileRange { offset, len }];
    let ask = FileAsk { path: path.to_vec(), ranges, ..FileAsk::default() };
    frame::encode(&ask, &mut bytes).expect("it is short");
    bytes
}

pub(super) fn all() -> Vec<Vec<u8>> {
    let seed = |size: u64, ranges: &[(u64, u64)]| {
        let opened = FileOpened { size, seconds: -1, nanos: 5 }.encode_to_vec();
        let ranges = ranges.iter().map(|&(offset, len)| FileRange { offset, len }).collect();
        let ask = FileAsk { ranges, ..FileAsk::default() }.encode_to_vec();
        [&[opened.len() as u8][..], &opened, &[ask.len() as u8], &ask].concat()
    };
    let clipped = |offset, len| {
        let opened = FileOpened { size: 10, seconds: -1, nanos: 5 }.encode_to_vec();
        let ranges = vec![FileRange { offset, len }];
        let ask = FileAsk { ranges, clip: true, ..FileAsk::default() }.encode_to_vec();
        [&[opened.len() as u8][..], &opened, &[ask.len() as u8], &ask].concat()
    };
    let changes = |changes: &[Change]| {
        let opened = FileOpened { size: 10, seconds: -1, nanos: 5 }.encode_to_vec();
        let mut bytes = [&[opened.len() as u8][..], &opened].concat();
        for change in changes {
            let ask = FileAsk { change: Some(change.clone().into()), ..FileAsk::default() };
            let ask = ask.encode_to_vec();
            bytes.push(ask.len() as u8);
            bytes.extend(ask);
        }
        bytes
    };
    vec![
        changes(&[Change::Write(7, vec![1, 2, 3]), Change::SetLen(3), Change::Sync]),
        seed(3 * CHUNK + 10, &[(0, 3 * CHUNK + 10), (CHUNK, CHUNK), (7, 1)]),
        seed(i64::MAX as u64, &[(i64::MAX as u64 - 1, 1), (0, i64::MAX as u64)]),
        seed(10, &[(10, 1), (0, 0), (u64::MAX, 2)]),
        clipped(3, u64::MAX - 3),
        clipped(10, 1),
    ]
}
