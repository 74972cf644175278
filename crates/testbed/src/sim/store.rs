//! A slab of reusable slots (packets refer to values by number), and a set of numbers.

/// Values by number; taking a value frees its number.
#[derive(Debug)]
pub(super) struct Store<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Store<T> {
    pub(super) fn new() -> Store<T> {
        Store { places: Vec::new(), free: Vec::new() }
    }

    /// Stores a value; returns its number.
    pub(super) fn put(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return place;
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u32
    }

    pub(super) fn at_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}

/// A set of numbers, as a bitmap from zero.
#[derive(Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    /// Adds a number; returns whether it is new.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(new);
        new
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let word = self.words.get((number / 64) as usize);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_only_after_its_value_was_taken() {
        let mut store = Store::new();
        let (a, b) = (store.put('a'), store.put('b'));
        assert_eq!((store.take(a), store.take(a)), (Some('a'), None));
        assert_eq!(store.put('c'), a);
        assert_eq!(store.at_mut(b), Some(&mut 'b'));
        assert_eq!(store.iter().collect::<String>(), "cb");
        assert_eq!(store.at_mut(7), None);
    }

    #[test]
    fn a_number_is_new_once() {
        let mut bits = Bits::default();
        assert!(bits.insert(0) && bits.insert(64) && bits.insert(1_000));
        assert!(!bits.insert(64));
        assert_eq!(bits.count(), 3);
        assert_eq!(
            [0, 1, 64, 1_000, 9_999].map(|n| bits.contains(n)),
            [true, false, true, true, false]
        );
    }
}
