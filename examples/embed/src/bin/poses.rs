//! 50 clients synchronise their poses (positions): each client sends its own pose, and receives the
//! last pose of every client, its own included.
//!
//! `cargo run --bin poses`

use std::collections::BTreeMap;

use longhaul::{Array, ChannelEvent, ChannelMode, ChannelSettings, Client, Error};

const CLIENTS: usize = 50;
const STEPS: u32 = 100;

async fn take_part(number: usize, client: Client, server: String) -> Result<(), Error> {
    let room = format!("{server}/world");
    // Only the newest pose of each client matters: a slow client skips old poses.
    let latest = ChannelSettings::new(ChannelMode::Latest);
    let mut poses = client.receive_channel(&*room, latest.clone()).await?;
    let own = client.send_channel(&*room, latest).await?;
    for step in 1..=STEPS {
        let pose = Array::message(&[4], &[step as f32, number as f32, 1.7, 0.5]);
        let key = format!("pose/{number}");
        own.input().send(Some(&key), pose.expect("4 numbers")).await?;
    }
    own.finish().await?;
    let mut world = BTreeMap::new();
    while world.values().filter(|pose: &&Vec<f32>| pose[0] == STEPS as f32).count() < CLIENTS {
        if let ChannelEvent::Message(message) = poses.next().await.expect("the room stays")? {
            let pose = Array::parse(&message.bytes).expect("an array").values();
            world.insert(message.key, pose.expect("numbers of 32 bits"));
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    embed::with_clients(CLIENTS, take_part)?;
    println!("each of the {CLIENTS} clients has the last pose of every client");
    Ok(())
}
