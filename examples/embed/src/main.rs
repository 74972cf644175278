//! Copies a folder to a server that runs within this program, and prints the events.
//!
//! `cargo run -- FOLDER SERVED_FOLDER`

use std::time::Duration;

use longhaul::{Access, Client, Event, Identity, Names, Server, Trust, blocking};

async fn copy(folder: &str, served: &str) -> Result<(), longhaul::Error> {
    let (here, there) = (Identity::generate(), Identity::generate());
    let server = Server::builder(there).root(served).listen("127.0.0.1:0");
    let mut server = server.allow(here.id().to_string(), Access::write_only()).start().await?;
    let client = Client::builder().identity(here).trust(Trust::only(server.id())).build()?;
    let copy = client.copy([folder], format!("lh://{}/", server.address()));
    let mut transfer = copy.recursive(true).names(Names::Done).start()?;
    let mut events = transfer.events();
    while let Some(event) = events.next().await {
        match event {
            Event::Progress(now) => println!("{} of {} bytes", now.bytes, now.total_bytes),
            Event::FileDone { path } => println!("copied {}", path.display()),
            Event::FileFailed { path, reason } => println!("{}: {reason}", path.display()),
            _ => {}
        }
    }
    let summary = transfer.finish().await?;
    println!("{} files, verified: {}", summary.copied_files, summary.verified);
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

fn main() -> Result<(), longhaul::Error> {
    let words: Vec<String> = std::env::args().collect();
    let [_, folder, served] = &words[..] else { panic!("usage: embed FOLDER SERVED_FOLDER") };
    blocking::wait(copy(folder, served))
}
