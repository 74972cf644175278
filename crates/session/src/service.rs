//! The services that a server offers over its sessions, each with its own messages.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use super::Session;
use crate::{Error, Kind};

/// A service. It answers the streams that request its name.
pub trait Service {
    /// Returns the name on the wire.
    fn name(&self) -> &'static str;

    /// Returns the version of the messages. Each new field that a receiver must not skip raises it.
    fn version(&self) -> u32;

    /// Returns the oldest version that this release still answers.
    fn oldest(&self) -> u32 {
        0
    }

    /// Returns the right that a client needs, as in [`Allow`](super::allow::Allow).
    fn right(&self) -> &'static str;

    /// Answers one stream. The client has sent only its hello so far, so the read of its first
    /// message needs a timeout.
    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>>;
}

/// The services of a server.
#[derive(Clone)]
pub struct Services(Rc<[Rc<dyn Service>]>);

impl Services {
    /// Offers `services`, the first one for streams without a service name.
    pub fn new(services: impl IntoIterator<Item = Rc<dyn Service>>) -> Services {
        Services(services.into_iter().collect())
    }

    /// Returns the service that a stream requests.
    ///
    /// # Errors
    /// [`Kind::Unreachable`]: there is no such service, or it does not answer this version.
    pub fn find(&self, name: &str, needs: u32) -> Result<Rc<dyn Service>, Error> {
        let refuse = |what: String| {
            let error = Error::new(Kind::Unreachable, what);
            error
                .advise("check that the server offers it, and that both sides run the same release")
        };
        let is_asked = |service: &&Rc<dyn Service>| name.is_empty() || service.name() == name;
        let shown: String = name.chars().filter(char::is_ascii_graphic).take(40).collect();
        let service = self.0.iter().find(is_asked);
        let service = service.ok_or_else(|| refuse(format!("unknown service {shown}")))?;
        let (name, version) = (service.name(), service.version());
        if needs > version {
            let what = format!("the service {name} has version {version} here; {needs} is needed");
            return Err(refuse(what));
        }
        let oldest = service.oldest();
        if needs < oldest {
            let what = format!(
                "the service {name} needs at least version {oldest} here; {needs} is requested"
            );
            return Err(refuse(what));
        }
        Ok(service.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str, u32, u32);

    impl Service for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn version(&self) -> u32 {
            self.2
        }

        fn oldest(&self) -> u32 {
            self.1
        }

        fn right(&self) -> &'static str {
            "files"
        }

        fn serve(self: Rc<Self>, _: Session) -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async {})
        }
    }

    /// A service that names no oldest version.
    struct Lasting;

    impl Service for Lasting {
        fn name(&self) -> &'static str {
            "lasting"
        }

        fn version(&self) -> u32 {
            7
        }

        fn right(&self) -> &'static str {
            "files"
        }

        fn serve(self: Rc<Self>, _: Session) -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async {})
        }
    }

    #[test]
    fn a_service_answers_version_0_unless_it_names_an_oldest_version() {
        assert!(Services::new([Rc::new(Lasting) as Rc<dyn Service>]).find("lasting", 0).is_ok());
    }

    #[test]
    fn a_stream_gets_the_service_it_names_if_the_service_answers_its_version() {
        let services = [Named("copy", 0, 2), Named("list", 0, 1), Named("stream", 2, 3)];
        let services =
            Services::new(services.map(|service| -> Rc<dyn Service> { Rc::new(service) }));
        let found = |name, needs| services.find(name, needs).map(|service| service.name());
        assert_eq!(found("", 0), Ok("copy"));
        assert_eq!(found("", 2), Ok("copy"));
        assert_eq!(found("list", 1), Ok("list"));
        for (name, needs) in [("", 3), ("list", 2), ("list", u32::MAX)] {
            let error = found(name, needs).unwrap_err();
            assert!(error.what.contains("is needed"), "{error}");
        }
        assert_eq!((found("stream", 2), found("stream", 3)), (Ok("stream"), Ok("stream")));
        for needs in [0, 1] {
            let error = found("stream", needs).unwrap_err();
            assert!(error.what.contains("needs at least version 2 here"), "{error}");
        }
        let error = found("sh\u{1b}ell", 0).unwrap_err();
        assert!(error.what.contains("unknown service shell"), "{error}");
    }
}
