//! `longhaul model`: predictions of the Quanta paper's equations for a path.

use crate::error::{Error, ErrorKind};
use clap::Subcommand;
use longhaul_proto::model::{Rbudp, Stream};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use serde_json::{Map, Value};

use crate::quantity::{parse_bytes, parse_loss, parse_rate, parse_span};
use crate::{console, exit};

/// Bytes of header and tag of a data datagram, which the model does not count.
const OVERHEAD: u64 = 32;

/// Predict a copy or a stream from RBUDP's equations
///
/// The equations and their numbers are those of the Quanta paper, section 4.
#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Rbudp(RbudpArgs),
    Stream(StreamArgs),
}

/// Predict a bulk copy by RBUDP: equations 1 to 7
#[derive(clap::Args)]
struct RbudpArgs {
    /// Size of the object
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Bytes,
    /// Sending rate in object bits a second, as in the paper (B_send)
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Rate,
    /// Round-trip time of the path
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    rtt: Span,
    /// Ratio of packets lost in each round
    #[arg(long, value_name = "LOSS", value_parser = parse_loss, default_value = "0")]
    loss: LossRatio,
    /// Object bytes in a packet
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1440")]
    packet: Bytes,
    /// Time to send an acknowledgement (T_ack)
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "0")]
    ack: Span,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Predict a stream of frames with a maximum delay: equations 8 to 11
#[derive(clap::Args)]
struct StreamArgs {
    /// Size of a frame: WIDTHxHEIGHTxBYTES with the bytes of one pixel, or a size
    #[arg(long, value_name = "WxHxBYTES|SIZE", value_parser = parse_frame)]
    frame: Bytes,
    /// Frames a second
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    per_second: f64,
    /// Largest extra delay: the time to collect the frames of a payload (D)
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    delay: Span,
    /// Round-trip time of the path
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    rtt: Span,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ModelArgs) -> u8 {
    let (rows, json) = match &args.what {
        What::Rbudp(args) => (rbudp(args), args.json),
        What::Stream(args) => (stream(args), args.json),
    };
    match rows {
        Ok(rows) if json => console::out(object(&rows)),
        Ok(rows) => rows.iter().for_each(|row| console::out(row.line())),
        Err(error) => return exit::fail(&error),
    }
    exit::DONE
}

#[derive(Clone, Copy, Debug)]
enum Quantity {
    Size(Bytes),
    Bits(Rate),
    Time(Span),
    Count(f64),
    Share(f64),
}

struct Row {
    /// The JSON name, which ends with the unit if there is one.
    key: &'static str,
    /// Number of the paper's equation, or empty.
    equation: &'static str,
    /// Symbol in the paper, or empty.
    symbol: &'static str,
    what: &'static str,
    quantity: Quantity,
}

impl Row {
    fn line(&self) -> String {
        let value = match self.quantity {
            Quantity::Size(size) => size.to_string(),
            Quantity::Bits(rate) => rate.to_string(),
            Quantity::Time(time) => time.to_string(),
            Quantity::Count(count) => format!("{count}"),
            Quantity::Share(share) => format!("{:.2} %", share * 100.0),
        };
        let Row { equation, symbol, what, .. } = self;
        format!("{equation:>5}  {symbol:<13} {value:>16}  {what}")
    }

    fn value(&self) -> Value {
        match self.quantity {
            Quantity::Size(size) => size.get().into(),
            Quantity::Bits(rate) => rate.as_bps().into(),
            Quantity::Time(time) => time.as_secs_f64().into(),
            Quantity::Count(number) | Quantity::Share(number) => number.into(),
        }
    }
}

fn row(
    key: &'static str,
    equation: &'static str,
    symbol: &'static str,
    quantity: Quantity,
    what: &'static str,
) -> Row {
    Row { key, equation, symbol, what, quantity }
}

fn object(rows: &[Row]) -> Value {
    Value::Object(rows.iter().map(|row| (row.key.to_owned(), row.value())).collect::<Map<_, _>>())
}

fn rbudp(args: &RbudpArgs) -> Result<Vec<Row>, Error> {
    use Quantity::{Bits, Count, Share, Size, Time};
    let packet = u32::try_from(args.packet.get()).unwrap_or(u32::MAX);
    if args.size == Bytes::ZERO || args.rate == Rate::ZERO || packet == 0 {
        return Err(usage("object, packet and rate must not be zero", "give values above zero"));
    }
    if args.loss.get() >= 1.0 {
        return Err(usage("a path that loses everything delivers nothing", "lower --loss"));
    }
    let model = Rbudp::new(args.size, args.rate, args.rtt, args.ack, args.loss, packet);
    let sealed = model.rate.scale((packet as f64 + OVERHEAD as f64) / f64::from(packet));
    Ok(vec![
        row("size_bytes", "", "S_total", Size(model.payload), "the object"),
        row("rate_bps", "", "B_send", Bits(model.rate), "sending rate, in bits of the object"),
        row("cp_rate_bps", "", "", Bits(sealed), "the same rate for longhaul cp --rate"),
        row("rtt_seconds", "", "RTT", Time(model.rtt), "round-trip time, 2 T_prop"),
        row("loss", "", "L", Share(model.loss.get()), "loss of each round"),
        row("packets", "", "P", Count(model.packets as f64), "packets of the object"),
        row("first_round_seconds", "2", "T_send,0", Time(model.first_round), "the first round"),
        row("achievable_bps", "1", "B_achievable", Bits(model.achievable), "S_total / T_total"),
        row("total_seconds", "2", "T_total", Time(model.total), "the whole copy, repairs included"),
        row("best_with_ack_bps", "3", "B_best", Bits(model.best_with_ack), "without loss"),
        row("best_bps", "4", "B_best", Bits(model.best), "without loss, T_ack negligible"),
        row("efficiency", "5", "B_best/B_send", Share(model.efficiency), "share of the rate"),
        row("size_for_90_bytes", "5", "", Size(model.payload_for_90), "size for 90 % efficiency"),
        row("resends", "6", "N_resend", Count(model.resends.into()), "repair rounds, on average"),
        row("resent_bytes", "7", "Σ S_i", Size(model.resent), "size of all repairs"),
        row("waste", "7", "", Share(model.waste), "repair bytes as a share of the object"),
    ])
}

fn stream(args: &StreamArgs) -> Result<Vec<Row>, Error> {
    use Quantity::{Bits, Count, Size, Time};
    let model = Stream::new(args.frame, args.per_second, args.delay, args.rtt)
        .map_err(|error| usage(&error.to_string(), "raise --delay"))?;
    Ok(vec![
        row("frame_bytes", "", "S_obj", Size(model.object), "a frame"),
        row("frames_per_second", "", "B_obj", Count(model.per_second), "frames a second"),
        row("delay_seconds", "", "D", Time(model.delay), "largest extra delay"),
        row("rtt_seconds", "", "RTT", Time(model.rtt), "round-trip time"),
        row("payload_bytes", "8", "S_total", Size(model.payload), "frames sent together"),
        row("frames_per_payload", "9", "N_obj", Count(model.objects), "frames in S_total"),
        row("frame_rate_bps", "10", "B_best", Bits(model.object_rate), "rate of the frames"),
        row("rate_bps", "11", "B_send", Bits(model.send_rate), "required sending rate"),
    ])
}

fn usage(what: &str, advice: &str) -> Error {
    Error::new(ErrorKind::Usage, what).advise(advice)
}

/// Parses `800x600x3`, or a size.
fn parse_frame(text: &str) -> Result<Bytes, String> {
    let expected = "expected a frame such as 800x600x3, or a size such as 1.44MB";
    if !text.contains('x') {
        return parse_bytes(text).map_err(|why| format!("{why}; {expected}"));
    }
    let factors = text.split('x').map(|factor| factor.trim().parse::<u64>().ok());
    let product = factors.reduce(|a, b| a?.checked_mul(b?)).flatten();
    product.map(Bytes::new).ok_or_else(|| format!("'{text}' is not a frame; {expected}"))
}

fn parse_count(text: &str) -> Result<f64, String> {
    let count = text.trim().parse::<f64>().ok().filter(|count| count.is_finite() && *count > 0.0);
    count.ok_or_else(|| format!("'{text}' is not a number above zero; expected for example 20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_frame_is_a_product_or_a_number() {
        assert_eq!(parse_frame("800x600x3"), Ok(Bytes::new(1_440_000)));
        assert_eq!(parse_frame("1.44MB"), Ok(Bytes::new(1_440_000)));
        for text in ["800x", "x", "axb", "99999999999x99999999999", "big"] {
            assert!(parse_frame(text).unwrap_err().contains("800x600x3"), "{text}");
        }
        assert!(parse_count("0").is_err() && parse_count("inf").is_err());
    }

    #[test]
    fn every_equation_is_printed() {
        let span = |millis| Span::from_millis(millis);
        let bulk = RbudpArgs {
            size: Bytes::new(450_000_000),
            rate: Rate::from_mbps(611),
            rtt: span(100),
            loss: LossRatio::of(12, 100),
            packet: Bytes::new(1_440),
            ack: Span::ZERO,
            json: false,
        };
        let frames = StreamArgs {
            frame: Bytes::new(1_440_000),
            per_second: 20.0,
            delay: span(500),
            rtt: span(100),
            json: false,
        };
        let mut rows = rbudp(&bulk).unwrap();
        rows.extend(stream(&frames).unwrap());
        for equation in 1..=11 {
            let equation = equation.to_string();
            assert!(rows.iter().any(|row| row.equation == equation), "equation {equation}");
        }
        let key = |key: &str| rows.iter().filter(|row| row.key == key).map(Row::value).next_back();
        assert_eq!(key("rate_bps"), Some(288_000_000.into()));
        assert_eq!(key("frames_per_payload"), Some(10.0.into()));
        assert_eq!(key("resends"), Some(6.0.into()));
    }
}
