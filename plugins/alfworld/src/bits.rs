//! Sets of small ids as slices of words.

/// Words needed for `n` bits; never 0, so that every set has a first word.
pub(crate) fn words(n: usize) -> usize {
    n.div_ceil(64).max(1)
}

#[inline]
pub(crate) fn has(set: &[u64], id: u16) -> bool {
    set[usize::from(id) / 64] >> (id % 64) & 1 == 1
}

#[inline]
pub(crate) fn set(set: &mut [u64], id: u16) {
    set[usize::from(id) / 64] |= 1 << (id % 64);
}

#[inline]
pub(crate) fn clear(set: &mut [u64], id: u16) {
    set[usize::from(id) / 64] &= !(1 << (id % 64));
}

pub(crate) fn unite(set: &mut [u64], other: &[u64]) {
    set.iter_mut().zip(other).for_each(|(a, b)| *a |= b);
}

pub(crate) fn intersect(set: &mut [u64], other: &[u64]) {
    set.iter_mut().zip(other).for_each(|(a, b)| *a &= b);
}

/// The union of `n` sets of `words` words.
pub(crate) fn union_of<'a>(n: usize, nth: impl Fn(u16) -> &'a [u64], words: usize) -> Vec<u64> {
    let mut union = vec![0; words];
    for i in (0u16..).take(n) {
        unite(&mut union, nth(i));
    }
    union
}

/// Number of members.
#[inline]
pub(crate) fn count(set: &[u64]) -> u32 {
    set.iter().map(|word| word.count_ones()).sum()
}

/// The members, ascending.
#[inline]
pub(crate) fn members(set: &[u64]) -> impl Iterator<Item = u16> + '_ {
    set.iter().enumerate().flat_map(|(i, &word)| word_members(word, i))
}

/// The members of a set whose `i`th word is `word`, ascending.
#[inline]
pub(crate) fn word_members(mut word: u64, i: usize) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as u16;
        word &= word - 1;
        Some(i as u16 * 64 + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_what_is_put_in() {
        let mut bits = vec![0; words(130)];
        assert_eq!(bits.len(), 3);
        for id in [0, 63, 64, 129] {
            set(&mut bits, id);
        }
        clear(&mut bits, 63);
        assert_eq!(members(&bits).collect::<Vec<_>>(), [0, 64, 129]);
        assert_eq!(count(&bits), 3);
        assert!(has(&bits, 129) && !has(&bits, 63));
        assert_eq!(words(0), 1);
    }
}
