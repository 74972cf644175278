//! How another host is reached, and whom to trust there: the flags that every subcommand has that
//! opens a session.

use longhaul_transfer::error::Error;
use longhaul_transfer::options::Trust;

use crate::config;
use crate::quantity::parse_ports;
use crate::words::SshCommand;

/// The way to another host.
#[derive(clap::Args)]
pub(crate) struct ReachArgs {
    /// The ssh command, with its arguments: 'ssh -J gate'
    #[arg(short = 'e', long, value_name = "COMMAND", default_value = "ssh")]
    #[arg(value_parser = SshCommand::parse)]
    rsh: SshCommand,
    /// Where longhaul is on the far side of ssh
    #[arg(long, value_name = "PATH", default_value = "longhaul")]
    pub(crate) remote_path: String,
    /// UDP port of the server's data [default: the one after its control port]
    #[arg(long, value_name = "PORT")]
    pub(crate) data_port: Option<u16>,
    /// UDP ports that the far side of ssh may open, where its firewall wants a range
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_ports)]
    pub(crate) ports: Option<(u16, u16)>,
    /// Accept only a server with this id
    #[arg(long, value_name = "ID")]
    server_id: Option<String>,
    /// Accept and remember a server that was never seen, without asking
    #[arg(long)]
    accept_new: bool,
}

impl ReachArgs {
    /// Who we are and whom we trust.
    ///
    /// # Errors
    /// There is no folder for this host's identity.
    pub(crate) fn trust(&self) -> Result<Trust, Error> {
        Ok(Trust {
            config_dir: config::folder()?,
            server_id: self.server_id.clone(),
            accept_new: self.accept_new,
        })
    }

    /// The ssh command, as words.
    pub(crate) fn ssh_command(&self) -> Vec<String> {
        self.rsh.0.clone()
    }
}
