//! The load of `share_load` with etcd: gRPC over HTTP/2, unencrypted.

use std::rc::Rc;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{SendRequest, handshake};
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use super::{Load, Seen, Writer};

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    /// The value of the key; in a watch, the end of the range of keys.
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<Pair>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchResponse {
    #[prost(bool, tag = "3")]
    created: bool,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, optional, tag = "2")]
    now: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

/// Encodes a message for gRPC: a zero byte (not compressed), the length, and the message.
fn framed(message: &impl Message) -> Bytes {
    let encoded = message.encode_to_vec();
    let mut all = vec![0];
    all.extend((encoded.len() as u32).to_be_bytes());
    all.extend(encoded);
    all.into()
}

async fn connect(load: &Load) -> SendRequest<Bytes> {
    let stream = TcpStream::connect((load.host.as_str(), load.port)).await;
    let stream = stream.expect("etcd listens");
    stream.set_nodelay(true).expect("TCP");
    let (client, connection) = handshake(stream).await.expect("etcd speaks HTTP/2");
    spawn_local(async move {
        let _ = connection.await;
    });
    client
}

async fn call(
    client: &mut SendRequest<Bytes>,
    method: &str,
    first: &impl Message,
    is_last: bool,
) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
    let request = Request::post(format!("http://etcd/etcdserverpb.{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a valid request");
    let mut ready = client.clone().ready().await.expect("the connection stays");
    let (answer, mut stream) = ready.send_request(request, false).expect("a stream is free");
    stream.send_data(framed(first), is_last).expect("a stream is open");
    (answer, stream)
}

async fn next(body: &mut RecvStream, buffer: &mut BytesMut) -> Option<Bytes> {
    loop {
        if buffer.len() >= 5 {
            let length = u32::from_be_bytes(buffer[1..5].try_into().ok()?) as usize;
            if buffer.len() >= 5 + length {
                buffer.advance(5);
                return Some(buffer.split_to(length).freeze());
            }
        }
        let data = body.data().await?.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        buffer.extend_from_slice(&data);
    }
}

pub(super) struct Etcd {
    client: SendRequest<Bytes>,
    tell: mpsc::UnboundedSender<()>,
    told: mpsc::UnboundedReceiver<()>,
}

impl Etcd {
    pub(super) async fn connect(load: &Load) -> Etcd {
        let (tell, told) = mpsc::unbounded_channel();
        Etcd { client: connect(load).await, tell, told }
    }
}

impl Writer for Etcd {
    async fn put(&mut self, key: &str, value: &[u8]) {
        let put = Pair { key: key.into(), value: value.to_vec() };
        let (answer, _) = call(&mut self.client, "KV/Put", &put, true).await;
        let tell = self.tell.clone();
        spawn_local(async move {
            let mut body = answer.await.expect("etcd answers").into_body();
            let put = next(&mut body, &mut BytesMut::new()).await;
            assert!(put.is_some(), "etcd refused a change");
            let _ = tell.send(());
        });
    }

    async fn flush(&mut self) {}

    async fn answers(&mut self) -> u64 {
        self.told.recv().await.map_or(0, |()| 1)
    }
}

pub(super) async fn watch(load: &Load, base: Instant, seen: Rc<Seen>) {
    let mut client = connect(load).await;
    let create = Some(Pair { key: b"load/".to_vec(), value: b"load0".to_vec() });
    let (answer, stream) = call(&mut client, "Watch/Watch", &WatchRequest { create }, false).await;
    let mut body = answer.await.expect("etcd answers").into_body();
    let mut buffer = BytesMut::new();
    let first = next(&mut body, &mut buffer).await.expect("the watch starts");
    assert!(WatchResponse::decode(first).is_ok_and(|first| first.created));
    spawn_local(async move {
        // Dropping the client or the stream would end the watch.
        let _open = (client, stream);
        while let Some(message) = next(&mut body, &mut buffer).await {
            let message = WatchResponse::decode(message).expect("a message of etcd");
            for now in message.events.into_iter().flat_map(|event| event.now) {
                seen.note(base, &now.value);
            }
        }
    });
}
