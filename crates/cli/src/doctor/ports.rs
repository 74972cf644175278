//! Checks a server's ports from this host.

use longhaul::{Client, Identity, Location, Ports, blocking};

use super::{Finding, Grade};
use crate::config;
use crate::error::Error;

pub(super) fn look(server: &Location, data_port: Option<u16>) -> Result<Vec<Finding>, Error> {
    let Location::Daemon { host, port, .. } = server else { return Ok(Vec::new()) };
    let identity = Identity::load_or_create(config::folder()?)?;
    let client = Client::builder().identity(identity).build()?;
    let ports = blocking::wait(client.look_at_ports(server.clone(), data_port))?;
    Ok(judge(host, *port, &ports))
}

fn judge(host: &str, port: u16, ports: &Ports) -> Vec<Finding> {
    let Ports { address, udp_control, tcp_control, data_port, data_mtu } = ports;
    let ip = address.ip();
    let mend = |transport: &str, port: u16| {
        format!(
            "check that longhaul serve runs on {host}, and open the port there: sudo ufw allow \
             {port}/{transport} (or sudo firewall-cmd --add-port={port}/{transport}, or the \
             equivalent of its firewall)"
        )
    };
    let said = |answer: &Result<String, String>| match answer {
        Ok(id) => format!("{id} answers"),
        Err(why) => why.clone(),
    };
    // The control connection needs UDP or TCP; data datagrams need UDP.
    let worst = if udp_control.is_err() && tcp_control.is_err() { Grade::Bad } else { Grade::Warn };
    let what = format!("UDP {port} of {ip}: {}", said(udp_control));
    let grade = Grade::unless(udp_control.is_ok(), worst);
    let control = Finding::new("port-control", grade, what, mend("udp", port));
    let what = match data_mtu {
        Some(mtu) => format!("UDP {data_port} of {ip}: packets of {mtu} B pass"),
        None => format!("UDP {data_port} of {ip}: no answer"),
    };
    let grade = Grade::unless(data_mtu.is_some(), Grade::Bad);
    let data = Finding::new("port-data", grade, what, mend("udp", *data_port));
    let what = format!("TCP {port} of {ip}: {}", said(tcp_control));
    let grade = Grade::unless(tcp_control.is_ok(), worst);
    vec![control, data, Finding::new("port-tcp", grade, what, mend("tcp", port))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grades(udp: bool, tcp: bool, mtu: Option<u16>) -> Vec<Grade> {
        let answer = |answers| if answers { Ok("lh1:x".to_owned()) } else { Err("no".to_owned()) };
        let ports = Ports {
            address: "192.0.2.1:7717".parse().unwrap(),
            udp_control: answer(udp),
            tcp_control: answer(tcp),
            data_port: 7718,
            data_mtu: mtu,
        };
        judge("h", 7717, &ports).into_iter().map(|finding| finding.grade).collect()
    }

    #[test]
    fn one_control_port_suffices_but_the_data_port_must_answer() {
        assert_eq!(grades(true, true, Some(1500)), [Grade::Ok; 3]);
        assert_eq!(grades(false, true, Some(1500)), [Grade::Warn, Grade::Ok, Grade::Ok]);
        assert_eq!(grades(true, false, None), [Grade::Ok, Grade::Bad, Grade::Warn]);
        assert_eq!(grades(false, false, None), [Grade::Bad; 3]);
    }
}
