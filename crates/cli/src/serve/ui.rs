//! The status page of a server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul::{Server, ServerControl};
use longhaul_gateway::{Gateway, Page, PageSettings, Traffic, Watched, Watching, read_private};

use super::metrics;
use crate::error::{Error, ErrorKind};
use crate::json::{self, ServedAt};

/// The shortest token: 16 characters of base64 are 96 bits.
const SHORTEST: usize = 16;

/// Flags of the page with the server's status.
#[derive(Clone, clap::Args)]
pub(super) struct UiArgs {
    /// Show the server's status on a page for browsers at this loopback address, and offer metrics
    /// there (OpenMetrics). The URL of the page, with a token, is printed at the start
    #[arg(long, value_name = "ADDRESS:PORT")]
    ui: Option<SocketAddr>,
    /// Read the token of the page from FILE instead of generating one; FILE must be readable by its
    /// owner only
    #[arg(long, value_name = "FILE", requires = "ui")]
    ui_token: Option<PathBuf>,
}

impl UiArgs {
    pub(super) fn start(
        &self,
        root: &Path,
        server: &Server,
        gateway: Option<&Gateway>,
    ) -> Result<Option<Page>, Error> {
        let Some(listen) = self.ui else { return Ok(None) };
        let token = self.ui_token.as_deref().map(read_token).transpose()?;
        let at = ServedAt {
            root: root.display().to_string(),
            address: server.address().to_string(),
            id: server.id().to_owned(),
        };
        let watched = View {
            control: server.control(),
            http: gateway.map(Gateway::traffic),
            at: Arc::new(at),
        };
        let page = Page::start(PageSettings { listen, token }, watched);
        page.map(Some).map_err(super::http::cli_error)
    }
}

fn read_token(path: &Path) -> Result<String, Error> {
    let text = read_private(path).map_err(super::http::cli_error)?;
    let token = text.trim().to_owned();
    let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if token.len() < SHORTEST || !is_plain {
        let what = format!("{} has no valid token", path.display());
        let advice = "write one line of 16 or more letters, digits, - and _";
        return Err(Error::new(ErrorKind::LocalFile, what).advise(advice));
    }
    Ok(token)
}

struct View {
    control: ServerControl,
    /// The counters of HTTP, if it is enabled.
    http: Option<Arc<Traffic>>,
    at: Arc<ServedAt>,
}

impl Watched for View {
    fn state(&self) -> Watching {
        let (control, at) = (self.control.clone(), self.at.clone());
        Box::pin(async move { Some(json::server_status(&control.status().await.ok()?, Some(&at))) })
    }

    fn metrics(&self) -> Watching {
        let (control, http) = (self.control.clone(), self.http.clone());
        Box::pin(async move {
            let http = http.map(|http| http.counts());
            Some(metrics::text(&control.status().await.ok()?, http.as_ref()))
        })
    }
}
