//! Times the read of 1,000 ranges of 64 KiB of a remote file of at least 100 MB, for `figures.sh
//! ranges` in `results`.
//!
//! Usage: `ranges URL PATH PATHS`. PATH is the remote file. PATHS is the local file in which the
//! client remembers network paths (`PathMemory`). The client's key is in the folder
//! `LONGHAUL_CONFIG_DIR`. Prints the seconds from the call of `read_ranges` on an open file to the
//! last byte, for two calls, one after the other.

use std::path::PathBuf;
use std::time::Instant;

use longhaul::{Client, PathMemory, Trust, blocking};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, path, paths] = &words[..] else { return Err("ranges URL PATH PATHS".into()) };
    let folder = PathBuf::from(std::env::var("LONGHAUL_CONFIG_DIR")?);
    let trust = Trust::known_servers(&folder).or_accept_new();
    let client = Client::builder().identity_in(&folder).trust(trust);
    let client = client.path_memory(PathMemory::in_file(paths)).build()?;
    let seconds = blocking::wait(async {
        let connection = client.connect(url).await?;
        let file = connection.open_file(path).await?;
        let mut seconds = Vec::new();
        for _ in 0..2 {
            let begun = Instant::now();
            let ranges = (0..1000).map(|n| n * 100_000..n * 100_000 + (64 << 10));
            let (mut reads, mut bytes) = (file.read_ranges(ranges).await?, 0);
            while let Some(piece) = reads.next().await {
                bytes += piece?.bytes.len();
            }
            assert_eq!(bytes, 1000 << 16);
            seconds.push(begun.elapsed().as_secs_f64());
        }
        drop(file);
        connection.close().await;
        Ok::<_, longhaul::Error>(seconds)
    })?;
    #[allow(clippy::print_stdout, reason = "the example prints its result")]
    {
        println!("{:.3} {:.3}", seconds[0], seconds[1]);
    }
    Ok(())
}
