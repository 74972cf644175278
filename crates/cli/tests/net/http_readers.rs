//! GDAL, pyarrow and a browser read a served folder by HTTP. CI installs only the browser.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;

use super::http::{Http, READER, has, succeeds};
use super::seeing::Browser;
use crate::rig::{Skipped, bytes, need, skip, wait_until, write};

/// Programs connect to the server without a proxy.
const DIRECT: &str = "export no_proxy='*' NO_PROXY='*'";

#[test]
fn gdal_reads_a_raster_by_ranges() {
    let has_gdal = Command::new("gdalinfo").arg("--version").output().is_ok();
    need!(skip::unless(has_gdal, "gdalinfo (package gdal-bin) is not installed"));
    let http = Http::new(&[]);
    let folder = http.scratch.path();
    // 16 MiB of random samples. GDAL needs only the header and the tiles of the window.
    let raster = "P5\n4096 4096\n255\n";
    write(&folder.join("map.pgm"), &[raster.as_bytes(), &bytes(1 << 24, 1)].concat());
    let tiled = "gdal_translate -q -of GTiff -co TILED=YES map.pgm data/map.tif";
    succeeds(tiled, folder);
    let window = "gdal_translate -q -of PNM -srcwin 1000 2000 300 200";
    succeeds(&format!("{window} data/map.tif here.pgm"), folder);
    let web = format!(
        "{DIRECT} GDAL_DISABLE_READDIR_ON_OPEN=EMPTY_DIR CPL_DEBUG=VSICURL \
         GDAL_HTTP_HEADERS='Authorization: Bearer {READER}'; \
         {window} /vsicurl/{}map.tif there.pgm 2> log; cmp here.pgm there.pgm; \
         grep -o 'Downloading [0-9]*-[0-9]*' log | \
         awk -F'[ -]' '{{all += $3 - $2 + 1}} END {{print all}}'",
        http.url
    );
    let read: u64 = succeeds(&web, folder).trim().parse().expect("a number of bytes");
    assert!((60_000..4_000_000).contains(&read), "{read} bytes");
    let refused = format!("{DIRECT}; ! gdalinfo /vsicurl/{}map.tif 2>&1", http.url);
    succeeds(&refused, folder);
}

/// The Python interpreter: `LONGHAUL_PYARROW`, or `python3`.
fn pyarrow() -> Result<String, Skipped> {
    let python = std::env::var("LONGHAUL_PYARROW").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    command.args(["-c", "import pyarrow.parquet, fsspec, aiohttp"]);
    let is_there = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let reason = format!(
        "{python} lacks pyarrow, fsspec or aiohttp; set LONGHAUL_PYARROW to a Python that has them"
    );
    skip::unless(is_there, &reason)?;
    Ok(python)
}

#[test]
fn pyarrow_reads_columns_of_a_parquet_file_by_ranges() {
    let python = need!(pyarrow());
    let http = Http::new(&[]);
    let folder = http.scratch.path();
    let script = "\
import sys, fsspec, pyarrow, pyarrow.parquet as pq
if sys.argv[1] == 'write':
    n = range(200000)
    table = pyarrow.table({'n': list(n), 'text': [str(i * 7919) for i in n]})
    pq.write_table(table, sys.argv[2], row_group_size=10000)
else:
    headers = {'Authorization': 'Bearer ' + sys.argv[3]}
    web = fsspec.filesystem('http', client_kwargs={'headers': headers})
    with web.open(sys.argv[2], block_size=65536) as file:
        table = pq.ParquetFile(file)
        print(table.num_row_groups, sum(table.read_row_group(7, ['n'])['n'].to_pylist()))
        print(sum(pq.read_table(file)['n'].to_pylist()))
";
    write(&folder.join("table.py"), script.as_bytes());
    succeeds(&format!("{python} table.py write data/table.parquet"), folder);
    let read = format!("{DIRECT}; {python} table.py read {}table.parquet {READER}", http.url);
    assert_eq!(succeeds(&read, folder), "20 749995000\n19999900000\n");
}

#[test]
fn a_browser_shows_a_folder_and_follows_its_links() {
    need!(has("chromium"));
    let http = Http::new(&["--http-public"]);
    write(&http.data.join("a b/<i>ünï & more.txt"), b"the content");
    let mut browser = Browser::start(http.scratch.path());
    browser.call("Page.enable", &json!({}));
    browser.call("Page.navigate", &json!({"url": http.url}));
    let link = |name: &str| {
        format!("[...document.querySelectorAll('a')].find((a) => a.textContent.includes('{name}'))")
    };
    browser.wait(&format!("{} !== undefined", link("a b")));
    let folder = browser.eval(&format!("{}.href", link("a b")));
    browser.call("Page.navigate", &json!({"url": folder}));
    let file = link("<i>ünï & more.txt");
    browser.wait(&format!("{file} !== undefined"));
    // The browser saves the file, because the server lets no browser show content as a page.
    let saved = http.scratch.path().join("saved");
    let saves = json!({"behavior": "allow", "downloadPath": saved});
    browser.call("Page.setDownloadBehavior", &saves);
    browser.eval(&format!("{file}.click()"));
    let name = "_i_ünï & more.txt";
    wait_until("the file is saved", || saved.join(name).exists());
    assert_eq!(fs::read(saved.join(name)).expect("it was saved"), b"the content");
}
