//! Detects duplicate messages.

use alloc::collections::BTreeMap;

/// How many of the newest numbers (the window) are remembered individually.
const WINDOW: u64 = 1_024;
const WORDS: usize = (WINDOW / 64) as usize;

/// The result of marking a number as arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The number is new. Marking a number may make lower numbers too old.
    New {
        /// Numbers that have become too old without having arrived.
        lost: u64,
        /// Whether a higher number arrived before this number.
        late: bool,
    },
    /// The number has arrived before.
    Twice,
    /// The number is too old: whether it arrived before is unknown. Also the largest possible
    /// number, which no honest sender uses.
    Old,
}

/// Which numbers of one sender have arrived, for the newest 1,024 numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// One more than the highest number.
    end: u64,
    /// The lowest number marked as new: lower numbers do not count as lost.
    begin: u64,
    words: [u64; WORDS],
}

impl Numbers {
    /// Marks a number.
    pub fn mark(&mut self, number: u64) -> Placed {
        if number == u64::MAX {
            return Placed::Old;
        }
        if self.end == 0 {
            self.begin = number;
            self.end = number;
        }
        if number >= self.end {
            let lost = self.advance(number);
            self.set(number);
            return Placed::New { lost, late: false };
        }
        if self.end - number > WINDOW {
            return Placed::Old;
        }
        if self.is_set(number) {
            return Placed::Twice;
        }
        self.begin = self.begin.min(number);
        self.set(number);
        Placed::New { lost: 0, late: true }
    }

    /// Whether a number has arrived. Also true for a number that is too old to be known.
    pub fn has(&self, number: u64) -> bool {
        number < self.end && (self.end - number > WINDOW || self.is_set(number))
    }

    /// Numbers in the window, above the lowest arrived one, that have not arrived.
    pub fn missing(&self) -> u64 {
        let from = self.begin.max(self.end.saturating_sub(WINDOW));
        (from..self.end).filter(|number| !self.is_set(*number)).count() as u64
    }

    /// Makes `number` the highest; returns how many numbers became too old without having arrived.
    fn advance(&mut self, number: u64) -> u64 {
        let end = number + 1;
        // Two kinds of numbers become too old: numbers that leave the window (`within`), and
        // numbers that a jump beyond the window skips (`between`).
        let start = end.saturating_sub(WINDOW);
        let old_start = self.begin.max(self.end.saturating_sub(WINDOW));
        let within = (old_start..start.min(self.end)).filter(|old| !self.is_set(*old)).count();
        let between = start.saturating_sub(self.end);
        for new in self.end.max(start)..end {
            self.clear(new);
        }
        self.end = end;
        within as u64 + between
    }

    fn place(number: u64) -> (usize, u64) {
        let bit = number % WINDOW;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn is_set(&self, number: u64) -> bool {
        let (word, bit) = Numbers::place(number);
        self.words[word] & bit != 0
    }

    fn set(&mut self, number: u64) {
        let (word, bit) = Numbers::place(number);
        self.words[word] |= bit;
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = Numbers::place(number);
        self.words[word] &= !bit;
    }
}

/// Which messages of several senders have arrived. Above the limit of senders, the sender that was
/// silent longest is forgotten.
#[derive(Clone, Debug)]
pub struct Seen {
    origins: BTreeMap<u64, (u64, Numbers)>,
    most: usize,
    uses: u64,
}

impl Seen {
    /// Remembers at most `most` senders, about 200 bytes each.
    pub fn new(most: usize) -> Seen {
        Seen { origins: BTreeMap::new(), most, uses: 0 }
    }

    /// Whether a message has arrived. Also true for a message that is too old to be known.
    pub fn has(&self, origin: u64, number: u64) -> bool {
        self.origins.get(&origin).is_some_and(|(_, numbers)| numbers.has(number))
    }

    /// Marks a message; returns whether the message is new. A message that is too old to be known
    /// does not count as new.
    pub fn is_new(&mut self, origin: u64, number: u64) -> bool {
        self.uses += 1;
        if !self.origins.contains_key(&origin) && self.origins.len() >= self.most {
            let oldest = self.origins.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(oldest, _)| *oldest) {
                self.origins.remove(&oldest);
            }
        }
        let (used, numbers) = self.origins.entry(origin).or_default();
        *used = self.uses;
        matches!(numbers.mark(number), Placed::New { .. })
    }
}
