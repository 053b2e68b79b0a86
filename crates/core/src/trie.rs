//! A trie of allowed actions: which token may come next when the action must be one of a list.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Token sequences by prefix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trie {
    nodes: Vec<BTreeMap<u32, u32>>,
}

/// A place in a [`Trie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrieNode(u32);

impl Trie {
    /// A trie of `sequences`, each of which ends with the stop token, so that none is a prefix of another.
    pub fn new(sequences: impl IntoIterator<Item = impl AsRef<[u32]>>) -> Self {
        let mut trie = Self { nodes: vec![BTreeMap::new()] };
        for sequence in sequences {
            let mut node = 0;
            for token in sequence.as_ref() {
                let next = trie.nodes.len() as u32;
                node = match trie.nodes[node].get(token) {
                    Some(known) => *known as usize,
                    None => {
                        trie.nodes[node].insert(*token, next);
                        trie.nodes.push(BTreeMap::new());
                        next as usize
                    }
                };
            }
        }
        trie
    }

    /// Where every sequence begins.
    pub fn root(&self) -> TrieNode {
        TrieNode(0)
    }

    /// Tokens that may come next, ascending; empty where a sequence is complete.
    pub fn allowed(&self, at: TrieNode) -> Arc<[u32]> {
        self.nodes.get(at.0 as usize).map(|next| next.keys().copied().collect()).unwrap_or_default()
    }

    /// The place after `token`, if it is allowed.
    pub fn step(&self, at: TrieNode, token: u32) -> Option<TrieNode> {
        self.nodes.get(at.0 as usize)?.get(&token).map(|n| TrieNode(*n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_allows_exactly_the_sequences() {
        let trie = Trie::new([vec![1, 2, 9], vec![1, 3, 9], vec![4, 9]]);
        let root = trie.root();
        assert_eq!(&*trie.allowed(root), [1, 4]);
        let one = trie.step(root, 1).unwrap();
        assert_eq!(&*trie.allowed(one), [2, 3]);
        let end = trie.step(trie.step(one, 2).unwrap(), 9).unwrap();
        assert!(trie.allowed(end).is_empty());
        assert_eq!(trie.step(root, 7), None);
        assert!(Trie::default().allowed(Trie::default().root()).is_empty());
    }
}
