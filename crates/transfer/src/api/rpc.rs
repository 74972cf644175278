//! Remote procedure calls between a client and its server, in both directions.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use longhaul_proto::rpc::RpcError;
use longhaul_rpc::client::Program;
use longhaul_rpc::{Methods, Rpc, RpcCall, RpcMessage};

use super::client::{Client, IntoLocation};
use super::host::HostRequest;
use super::server::ServerBuilder;
use crate::calls::Calls;
use crate::error::public::{Error, ErrorKind};
use crate::options::ReachOptions;
use crate::progress::Cancel;
use crate::rpc::serve_rpc;

const NAME: &str = "longhaul calls";

impl Client {
    /// Describes a connection for calls to the server `host`: `lh://host[:port]`. The path is
    /// ignored. Await the request.
    pub fn rpc(&self, host: impl IntoLocation) -> RpcRequest {
        let (host, methods) = (HostRequest::new(self, host), Ok(Methods::default()));
        RpcRequest { host, methods, retry_for: Duration::from_secs(300) }
    }
}

impl ServerBuilder {
    /// Offers a method to clients that have a right to its name (`rpc=/PREFIX` in the list of
    /// clients). A name has parts between slashes, such as `telescope/point`. All methods run
    /// concurrently on one thread, so run long computations on other threads.
    pub fn rpc<Q: RpcMessage, A: RpcMessage, F>(
        mut self,
        name: &str,
        method: impl Fn(Q, RpcCall) -> F + Send + Sync + 'static,
    ) -> ServerBuilder
    where
        F: Future<Output = Result<A, RpcError>> + Send + 'static,
    {
        if let Err(why) = self.options.methods.add(name, method) {
            self.error = self.error.or_else(|| Some(Error::new(ErrorKind::Usage, why)));
        }
        self
    }
}

/// A request for a connection for calls: await it.
#[derive(Clone, Debug)]
#[must_use = "a connection is opened when its request is awaited"]
pub struct RpcRequest {
    host: HostRequest,
    methods: Result<Methods, Error>,
    retry_for: Duration,
}

impl RpcRequest {
    /// Offers a method to the server, which calls it by [`RpcCall::caller`]; see
    /// [`ServerBuilder::rpc`].
    pub fn rpc<Q: RpcMessage, A: RpcMessage, F>(
        mut self,
        name: &str,
        method: impl Fn(Q, RpcCall) -> F + Send + Sync + 'static,
    ) -> RpcRequest
    where
        F: Future<Output = Result<A, RpcError>> + Send + 'static,
    {
        let added = self.methods.as_mut().ok().map(|methods| methods.add(name, method));
        if let Some(Err(why)) = added {
            self.methods = Err(Error::new(ErrorKind::Usage, why));
        }
        self
    }

    /// Sets how the host is reached.
    pub fn reach(self, reach: ReachOptions) -> RpcRequest {
        RpcRequest { host: self.host.reach(reach), ..self }
    }

    /// Sets how long to keep retrying a lost connection. By default 5 minutes.
    pub fn retry_for(self, time: Duration) -> RpcRequest {
        RpcRequest { retry_for: time, ..self }
    }

    /// Ends the attempt to connect, or all calls, when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> RpcRequest {
        RpcRequest { host: self.host.cancel_with(handle), ..self }
    }
}

impl IntoFuture for RpcRequest {
    type Output = Result<Rpc, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// # Errors
    /// A method has an invalid name, or the host cannot be reached or is not trusted. A host that
    /// does not admit this client refuses the first call.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (program, retry_for) = (Program::new(self.methods?), self.retry_for);
            let rpc = program.handle();
            let serve = move |calls: Calls<(), Infallible>| serve_rpc(calls, program, retry_for);
            self.host.open(NAME, 1, serve).await?;
            Ok(rpc)
        })
    }
}
