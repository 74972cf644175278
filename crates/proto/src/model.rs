//! RBUDP's analytical model: He et al., "Quanta", sections 4.1 and 4.3, equations 1 to 11.
//!
//! The symbols are the paper's: S the payload, B a rate, T a time, L a loss ratio, N a number of
//! rounds. Rates here are bits of the *object* a second; a sending rate of UDP payload is higher by
//! the datagram's header and tag.
//!
//! ```
//! use longhaul_proto::model::{Rbudp, best};
//! use longhaul_proto::time::Span;
//! use longhaul_proto::units::{Bytes, LossRatio, Rate};
//!
//! let (rate, rtt) = (Rate::from_mbps(611), Span::from_millis(100));
//! let ideal = best(Bytes::new(450_000_000), rate, rtt);
//! assert_eq!(ideal.as_bps() / 1_000_000, 600);
//! let loss = LossRatio::new(0.12).unwrap();
//! let model = Rbudp::new(Bytes::new(450_000_000), rate, rtt, Span::ZERO, loss, 1440);
//! assert_eq!(model.resends, 6);
//! ```

use crate::time::Span;
use crate::units::{Bytes, LossRatio, Rate};

/// Error: the delay does not exceed the round-trip time, so no sending rate is high enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayTooShort {
    /// The requested delay.
    pub delay: Span,
    /// The round-trip time that the delay must exceed.
    pub rtt: Span,
}

impl core::fmt::Display for DelayTooShort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let DelayTooShort { delay, rtt } = self;
        write!(f, "a delay of {delay} is too short: it must exceed the round trip of {rtt}")
    }
}

impl core::error::Error for DelayTooShort {}

/// Equation 1: the achieved rate when `payload` takes `total`.
///
/// B_achievable = S_total / T_total
pub fn achievable(payload: Bytes, total: Span) -> Rate {
    payload / total
}

/// Equation 2: the time for a payload and its repairs.
///
/// T_total = (T_prop + T_send,0) + Σ (T_prop + T_send,i) + (N + 1)·(T_prop + T_ack) with
/// T_send,i = S_i / B_send; `resent` gives S_1 to S_N.
pub fn total(payload: Bytes, resent: &[Bytes], rate: Rate, prop: Span, ack: Span) -> Span {
    let first = prop + payload / rate;
    let repairs = resent.iter().fold(Span::ZERO, |sum, size| sum + prop + *size / rate);
    first + repairs + (prop + ack) * (resent.len() as u64 + 1)
}

/// Equation 3: the best rate, without loss.
///
/// B_best = S_total / (S_total/B_send + 2·T_prop + T_ack)
pub fn best_with_ack(payload: Bytes, rate: Rate, prop: Span, ack: Span) -> Rate {
    payload / (payload / rate + prop * 2 + ack)
}

/// Equation 4: equation 3 with an acknowledgement that takes no time.
///
/// B_best = S_total / (S_total/B_send + RTT)
pub fn best(payload: Bytes, rate: Rate, rtt: Span) -> Rate {
    payload / (payload / rate + rtt)
}

/// Equation 5: the best share of the sending rate that can be achieved, from 0 to 1.
///
/// B_best/B_send = 1 / (1 + RTT·B_send/S_total)
pub fn efficiency(payload: Bytes, rate: Rate, rtt: Span) -> f64 {
    if payload == Bytes::ZERO {
        return 0.0;
    }
    1.0 / (1.0 + rtt.as_secs_f64() * rate.as_bps() as f64 / payload.bits())
}

/// Equation 5 solved for the payload: the smallest payload that achieves `share` (from 0 to below
/// 1) of the sending rate.
pub(crate) fn payload_for(share: f64, rate: Rate, rtt: Span) -> Bytes {
    let bits = rtt.as_secs_f64() * rate.as_bps() as f64 * share / (1.0 - share);
    Bytes::new(libm::ceil(bits / 8.0 - 1e-6) as u64)
}

/// Equation 6: the number of repair rounds until a round sends, on average, at most one packet, if
/// each round loses the same share L.
///
/// N_resend = ⌈ln(S_total/S_packet) / ln(1/L)⌉; zero without loss, or if the payload fits into one
/// packet; `None` if a larger payload meets a loss of 1.
pub fn resends(payload: Bytes, packet: u32, loss: LossRatio) -> Option<u32> {
    let packets = payload.get() as f64 / f64::from(packet.max(1));
    if loss == LossRatio::NONE || packets <= 1.0 {
        return Some(0);
    }
    if loss.get() >= 1.0 {
        return None;
    }
    // A quotient that differs from a whole number only by rounding counts as that number.
    let rounds = libm::log(packets) / libm::log(1.0 / loss.get());
    Some(libm::ceil(rounds - 1e-9) as u32)
}

/// Equation 7: the data sent in `resends` rounds of repair.
///
/// Σ S_total·Lⁱ = S_total·L·(1 − Lᴺ)/(1 − L)
pub fn resent(payload: Bytes, loss: LossRatio, resends: u32) -> Bytes {
    let loss = loss.get();
    if loss >= 1.0 {
        return Bytes::new(payload.get().saturating_mul(u64::from(resends)));
    }
    let share = loss * (1.0 - libm::pow(loss, f64::from(resends))) / (1.0 - loss);
    Bytes::new(libm::round(payload.get() as f64 * share) as u64)
}

/// Equation 8: the size of a payload of `objects` objects.
///
/// S_total = S_obj · N_obj
pub(crate) fn stream_payload(object: Bytes, objects: f64) -> Bytes {
    Bytes::new(libm::round(object.get() as f64 * objects) as u64)
}

/// Equation 9: the number of objects that come in `delay`, at `per_second` objects a second.
///
/// N_obj = B_obj · D
pub(crate) fn stream_objects(per_second: f64, delay: Span) -> f64 {
    per_second * delay.as_secs_f64()
}

/// Equation 10: the data rate of the objects.
///
/// B_best = B_obj · S_obj
pub(crate) fn stream_rate(object: Bytes, per_second: f64) -> Rate {
    Rate::from_bps_f64(object.bits() * per_second)
}

/// Equation 11: the sending rate that a stream needs.
///
/// B_send = B_obj·S_obj / (1 − RTT/D)
///
/// # Errors
/// [`DelayTooShort`] if `delay` is not longer than `rtt`.
pub(crate) fn stream_send_rate(
    object: Bytes,
    per_second: f64,
    delay: Span,
    rtt: Span,
) -> Result<Rate, DelayTooShort> {
    if delay <= rtt {
        return Err(DelayTooShort { delay, rtt });
    }
    let left = 1.0 - rtt.as_secs_f64() / delay.as_secs_f64();
    Ok(Rate::from_bps_f64(object.bits() * per_second / left))
}

/// Every quantity of equations 1 to 7 for one transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rbudp {
    /// S_total.
    pub payload: Bytes,
    /// B_send, in bits of the object a second.
    pub rate: Rate,
    /// Twice T_prop.
    pub rtt: Span,
    /// T_ack.
    pub ack: Span,
    /// L, the same in each round.
    pub loss: LossRatio,
    /// Bytes of the object in a packet.
    pub packet: u32,
    /// Packets in the payload.
    pub packets: u64,
    /// T_send,0: the first round alone.
    pub first_round: Span,
    /// N_resend, equation 6; `u32::MAX` where [`resends`] is `None`.
    pub resends: u32,
    /// The sum of equation 7.
    pub resent: Bytes,
    /// T_total, equation 2.
    pub total: Span,
    /// B_achievable, equation 1.
    pub achievable: Rate,
    /// B_best without loss, equation 3.
    pub best_with_ack: Rate,
    /// B_best without loss and with T_ack = 0, equation 4.
    pub best: Rate,
    /// B_best/B_send, equation 5.
    pub efficiency: f64,
    /// The smallest payload that achieves 90 % of the sending rate without loss.
    pub payload_for_90: Bytes,
    /// Data sent beyond the payload, as a share of the payload.
    pub waste: f64,
}

impl Rbudp {
    /// Evaluates the equations for `payload` bytes in packets that carry `packet` bytes each.
    pub fn new(
        payload: Bytes,
        rate: Rate,
        rtt: Span,
        ack: Span,
        loss: LossRatio,
        packet: u32,
    ) -> Rbudp {
        let resends = resends(payload, packet, loss);
        let resent = resent(payload, loss, resends.unwrap_or(0));
        let rounds = u64::from(resends.unwrap_or(0)) + 1;
        // Equation 2 needs only the sum of the rounds' sizes, not each size.
        let total = match resends {
            Some(_) => payload / rate + resent / rate + (rtt + ack) * rounds,
            None => Span::MAX,
        };
        Rbudp {
            payload,
            rate,
            rtt,
            ack,
            loss,
            packet,
            packets: payload.get().div_ceil(u64::from(packet.max(1))),
            first_round: payload / rate,
            resends: resends.unwrap_or(u32::MAX),
            resent,
            total,
            achievable: if resends.is_some() { achievable(payload, total) } else { Rate::ZERO },
            best_with_ack: best_with_ack(payload, rate, rtt / 2, ack),
            best: best(payload, rate, rtt),
            efficiency: efficiency(payload, rate, rtt),
            payload_for_90: payload_for(0.9, rate, rtt),
            waste: resent.get() as f64 / payload.get().max(1) as f64,
        }
    }
}

/// Every quantity of equations 8 to 11 for one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// S_obj.
    pub object: Bytes,
    /// B_obj, objects a second.
    pub per_second: f64,
    /// D, the tolerated extra delay.
    pub delay: Span,
    /// The round-trip time.
    pub rtt: Span,
    /// N_obj, equation 9.
    pub objects: f64,
    /// S_total, equation 8.
    pub payload: Bytes,
    /// B_best, equation 10.
    pub object_rate: Rate,
    /// B_send, equation 11.
    pub send_rate: Rate,
}

impl Stream {
    /// Evaluates the equations.
    ///
    /// # Errors
    /// [`DelayTooShort`] if `delay` is not longer than `rtt`.
    pub fn new(
        object: Bytes,
        per_second: f64,
        delay: Span,
        rtt: Span,
    ) -> Result<Stream, DelayTooShort> {
        let send_rate = stream_send_rate(object, per_second, delay, rtt)?;
        let objects = stream_objects(per_second, delay);
        Ok(Stream {
            object,
            per_second,
            delay,
            rtt,
            objects,
            payload: stream_payload(object, objects),
            object_rate: stream_rate(object, per_second),
            send_rate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RTT: Span = Span::from_millis(100);

    fn loss(value: f64) -> LossRatio {
        LossRatio::new(value).unwrap()
    }

    #[test]
    fn ninety_percent_of_600_mbit_at_100_ms_needs_67_megabytes_and_a_half() {
        let rate = Rate::from_mbps(600);
        assert_eq!(payload_for(0.9, rate, RTT), Bytes::new(67_500_000));
        assert!((efficiency(Bytes::new(67_500_000), rate, RTT) - 0.9).abs() < 1e-12);
    }

    #[test]
    fn twenty_frames_a_second_need_288_mbit_and_ten_frames_a_payload() {
        let frame = Bytes::new(800 * 600 * 3);
        let stream = Stream::new(frame, 20.0, Span::from_millis(500), RTT).unwrap();
        assert_eq!(stream.send_rate, Rate::from_mbps(288));
        assert_eq!(stream.objects, 10.0);
        assert_eq!(stream.payload, Bytes::new(14_400_000));
        assert_eq!(stream.object_rate, Rate::from_bps(230_400_000));
    }

    #[test]
    fn a_delay_within_the_round_trip_has_no_solution() {
        let error = DelayTooShort { delay: RTT, rtt: RTT };
        assert_eq!(Stream::new(Bytes::new(1), 20.0, RTT, RTT), Err(error));
        assert!(Stream::new(Bytes::new(1), 20.0, RTT + Span::from_nanos(1), RTT).is_ok());
    }

    #[test]
    fn without_loss_nothing_is_resent_and_equations_1_to_5_agree() {
        let (size, rate) = (Bytes::new(450_000_000), Rate::from_mbps(611));
        let model = Rbudp::new(size, rate, RTT, Span::ZERO, LossRatio::NONE, 1440);
        assert_eq!((model.resends, model.resent), (0, Bytes::ZERO));
        assert_eq!(model.achievable, model.best);
        assert_eq!(model.best, model.best_with_ack);
        assert_eq!(model.total, total(size, &[], rate, RTT / 2, Span::ZERO));
        let share = model.best.as_bps() as f64 / rate.as_bps() as f64;
        assert!((share - model.efficiency).abs() < 1e-6);
    }

    #[test]
    fn at_twelve_percent_loss_450_megabytes_need_six_repair_rounds() {
        let (size, rate) = (Bytes::new(450_000_000), Rate::from_mbps(682));
        let model = Rbudp::new(size, rate, RTT, Span::from_millis(1), loss(0.12), 1440);
        // ln(312,500) / ln(1/0.12) = 5.97
        assert_eq!((model.packets, model.resends), (312_500, 6));
        assert!((model.waste - 0.12 / 0.88).abs() < 1e-5);
        let rounds: [Bytes; 6] =
            core::array::from_fn(|i| Bytes::new((450e6 * libm::pow(0.12, i as f64 + 1.0)) as u64));
        let by_rounds = total(size, &rounds, rate, RTT / 2, Span::from_millis(1));
        let difference = (by_rounds - model.total).max(model.total - by_rounds);
        assert!(difference < Span::from_micros(1), "{difference}");
    }

    #[test]
    fn a_path_that_loses_everything_achieves_nothing() {
        let size = Bytes::new(1_000_000);
        let model = Rbudp::new(size, Rate::from_mbps(1), RTT, Span::ZERO, loss(1.0), 1000);
        assert_eq!((model.achievable, model.total), (Rate::ZERO, Span::MAX));
        assert_eq!(resends(size, 1000, loss(1.0)), None);
        // The first round sends only one packet, so a payload of one packet needs no repair round.
        assert_eq!(resends(Bytes::new(1000), 1000, loss(1.0)), Some(0));
        // If each round loses a tenth of its packets, the first round sends 1,000 packets, and the
        // third repair round sends one.
        assert_eq!(resends(size, 1000, loss(0.1)), Some(3));
        // The quotient of the logarithms is slightly above 3 because of rounding.
        assert_eq!(resends(Bytes::new(125_000), 1000, loss(0.2)), Some(3));
    }

    #[test]
    fn the_error_for_a_too_short_delay_names_the_delay_and_the_round_trip() {
        let error = DelayTooShort { delay: Span::from_millis(50), rtt: RTT };
        let said = "a delay of 50.0 ms is too short: it must exceed the round trip of 100.0 ms";
        assert_eq!(alloc::format!("{error}"), said);
    }

    proptest! {
        #[test]
        fn the_last_round_of_equation_6_sends_at_most_one_packet(
            packets in 1u64..100_000_000, share in 0.0001..0.9,
        ) {
            let rounds = resends(Bytes::new(packets * 1000), 1000, loss(share)).unwrap();
            let left = |rounds: u32| packets as f64 * libm::pow(share, f64::from(rounds));
            prop_assert!(left(rounds) <= 1.0 + 1e-6);
            prop_assert!(rounds == 0 || left(rounds - 1) > 1.0 - 1e-6);
        }
    }
}
