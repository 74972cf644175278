//! Sets of chunks on the wire: alternating gaps and lengths, checked when read.

/// Ascending, non-empty ranges that do not touch, as pairs of (gap since the previous range's end,
/// length).
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ranges {
    /// Gap, length, gap, length, …
    #[prost(uint64, repeated, tag = "1")]
    pub steps: Vec<u64>,
}

/// Why ranges are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangesError {
    /// A gap without a length, an empty range, or two ranges that touch.
    Malformed,
    /// A range ends beyond the limit.
    Beyond,
}

impl Ranges {
    /// Returns the wire form of ascending, non-empty ranges of which no two touch or overlap.
    pub fn encode(ranges: impl IntoIterator<Item = std::ops::Range<u64>>) -> Ranges {
        let mut end = 0;
        let mut steps = Vec::new();
        for range in ranges {
            debug_assert!(steps.is_empty() || range.start > end);
            debug_assert!(range.end > range.start);
            steps.push(range.start - end);
            steps.push(range.end - range.start);
            end = range.end;
        }
        Ranges { steps }
    }

    /// Returns the ranges, all of them within `0..limit`. Never allocates more memory than `steps`
    /// takes.
    ///
    /// # Errors
    /// [`RangesError`] if the message is invalid.
    pub fn decode(&self, limit: u64) -> Result<Vec<std::ops::Range<u64>>, RangesError> {
        let (pairs, rest) = self.steps.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(RangesError::Malformed);
        }
        let mut ranges = Vec::with_capacity(pairs.len());
        let mut end = 0u64;
        for (nth, [gap, len]) in pairs.iter().enumerate() {
            if *len == 0 || (nth > 0 && *gap == 0) {
                return Err(RangesError::Malformed);
            }
            let start = end.checked_add(*gap).ok_or(RangesError::Beyond)?;
            end = start.checked_add(*len).ok_or(RangesError::Beyond)?;
            if end > limit {
                return Err(RangesError::Beyond);
            }
            ranges.push(start..end);
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_ranges_and_ranges_beyond_the_limit_are_refused() {
        let decode = |steps: &[u64]| Ranges { steps: steps.to_vec() }.decode(100);
        assert_eq!(decode(&[1]), Err(RangesError::Malformed));
        assert_eq!(decode(&[1, 0]), Err(RangesError::Malformed));
        assert_eq!(decode(&[0, 5, 0, 5]), Err(RangesError::Malformed));
        assert_eq!(decode(&[0, 101]), Err(RangesError::Beyond));
        assert_eq!(decode(&[u64::MAX, 1]), Err(RangesError::Beyond));
        assert_eq!(decode(&[2, u64::MAX]), Err(RangesError::Beyond));
        assert_eq!(decode(&[0, 100]), Ok(std::iter::once(0..100).collect()));
    }

    proptest! {
        #[test]
        fn ranges_survive_the_wire(steps in prop::collection::vec((1u64..50, 1u64..50), 0..40)) {
            let mut end = 0;
            let ranges: Vec<_> = steps.iter().map(|(gap, len)| {
                let start = end + gap;
                end = start + len;
                start..end
            }).collect();
            prop_assert_eq!(Ranges::encode(ranges.clone()).decode(end), Ok(ranges.clone()));
            if end > 0 && !ranges.is_empty() {
                prop_assert_eq!(Ranges::encode(ranges).decode(end - 1), Err(RangesError::Beyond));
            }
        }
    }
}
