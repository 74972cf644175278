//! A source that is ready to be sent.

use std::sync::Arc;

use longhaul_files::{Failure, Manifest, Source, VirtualObject};

use super::offer;
use crate::control::Offer;
use crate::error::Error;
use crate::flow::payloads::Payloads;

/// What the receiving end learns about a source before the data, and what the sending end keeps
/// about the source.
pub(crate) struct Description {
    pub(super) offer: Offer,
    /// The manifest (the list of files), if it goes on the control stream behind the offer.
    pub(super) list: Option<Vec<u8>>,
    /// Entries that failed during the walk over the source.
    pub(super) failures: Vec<Failure>,
    pub(super) manifest: Arc<Manifest>,
    pub(super) object: VirtualObject,
}

/// Splits `source` into its description and its payloads. With `surveyed`, the receiving end has
/// the manifest already. With `in_the_clear` (the data are not encrypted), a long manifest goes on
/// the control stream; otherwise it is the start of the data.
pub(crate) fn prepare(
    mut source: Source,
    surveyed: bool,
    in_the_clear: bool,
) -> Result<(Description, Box<Payloads>), Error> {
    let (offer, list) = match surveyed {
        true => (offer::surveyed(&source), None),
        false => offer::whole(&mut source, in_the_clear),
    };
    let failures = source.failures().to_vec();
    let (manifest, object) = (source.manifest().clone(), source.object().clone());
    let description = Description { offer, list, failures, manifest, object };
    Ok((description, Box::new(Payloads::new(source)?)))
}
