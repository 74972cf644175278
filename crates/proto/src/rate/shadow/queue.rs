//! The path's queue: its length now and in the current round, and the part that is our own.

/// Length of the path's queue in one round, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundQueue {
    pub(super) mean: f64,
    pub(super) shortest: f64,
    pub(super) longest: f64,
}

/// Length of the path's queue, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Smallest one-way delay towards the receiver, including the offset between the two clocks.
    base: f64,
    pub(super) now: f64,
    sum: f64,
    count: f64,
    shortest: f64,
    longest: f64,
    /// The part of the queue that our own datagrams made.
    pub(super) own: f64,
}

impl Queue {
    pub(super) const NEW: Queue = Queue {
        base: f64::INFINITY,
        now: 0.0,
        sum: 0.0,
        count: 0.0,
        shortest: f64::INFINITY,
        longest: 0.0,
        own: 0.0,
    };

    /// Takes in a sample: `delay` is the one-way delay by the two clocks, `rise` is the rise of
    /// the round-trip time above its minimum, both in seconds.
    pub(super) fn note(&mut self, delay: f64, rise: f64) {
        self.base = self.base.min(delay);
        self.now = (delay - self.base).min(rise).max(0.0);
        (self.sum, self.count) = (self.sum + self.now, self.count + 1.0);
        self.shortest = self.shortest.min(self.now);
        self.longest = self.longest.max(self.now);
    }

    /// Ends a round and returns its queue; `None` without a sample.
    pub(super) fn close(&mut self) -> Option<RoundQueue> {
        let Queue { sum, count, shortest, longest, .. } = *self;
        *self = Queue { base: self.base, now: self.now, own: self.own, ..Queue::NEW };
        (count > 0.0).then(|| RoundQueue { mean: sum / count, shortest, longest })
    }

    /// Returns the other flows' part of a queue of `queue` seconds, after a round of `span` seconds
    /// in which we sent `load` times the capacity.
    pub(super) fn of_others(&mut self, queue: f64, load: f64, span: f64) -> f64 {
        self.own = (self.own + (load - 1.0) * span).clamp(0.0, queue);
        queue - self.own
    }

    /// Attributes the whole queue to our own datagrams, because its origin is unknown.
    pub(super) fn take_all(&mut self) {
        self.own = f64::INFINITY;
    }
}
