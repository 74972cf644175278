//! A detector sends frames to an analysis program, which limits the number of frames in flight.
//!
//! `cargo run --bin detector`
use longhaul::{Array, ChannelEvent, Client, Error};

const FRAMES: u16 = 200;

async fn detect(client: Client, lab: String) -> Result<(), Error> {
    let mut granted = client.receive_channel(lab.clone() + "/granted", Default::default()).await?;
    let frames = client.send_channel(lab + "/frames", Default::default()).await?;
    let mut most = 0;
    for number in 0..FRAMES {
        while number >= most {
            if let ChannelEvent::Message(word) = granted.next().await.expect("the room stays")? {
                most = u16::from_be_bytes(word.bytes[..].try_into().expect("2 bytes"));
            }
        }
        let pixels = Array::message(&[256, 512], &vec![number; 256 * 512]);
        frames.input().send(None, pixels.expect("its shape")).await?;
    }
    frames.finish().await.map(drop)
}

async fn analyse(client: Client, lab: String) -> Result<(), Error> {
    let mut frames = client.receive_channel(lab.clone() + "/frames", Default::default()).await?;
    let granted = client.send_channel(lab + "/granted", Default::default()).await?;
    for count in 0..=FRAMES {
        // The first event is `Joined`, without a frame. The answer to it grants the first 8 frames.
        if let ChannelEvent::Message(frame) = frames.next().await.expect("the room stays")? {
            let pixels = Array::parse(&frame.bytes).ok().and_then(|array| array.values::<u16>());
            assert_eq!(pixels.expect("numbers of 16 bits")[0], count - 1, "a frame was lost");
        }
        granted.input().send(None, (count + 8).to_be_bytes()).await?;
    }
    granted.finish().await.map(drop)
}

fn main() -> Result<(), Error> {
    embed::with_clients(2, |number, client, lab| async move {
        if number == 0 { detect(client, lab).await } else { analyse(client, lab).await }
    })
}
