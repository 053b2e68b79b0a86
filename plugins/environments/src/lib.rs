//! Embedded environments: native, deterministic in their seeds, without data of their own.

pub mod bugfix;
pub mod curriculum;
pub mod finite;
pub mod knights;
pub mod mini_tool;
pub mod repair_mdp;
pub mod sealed;
pub mod sokoban;
pub mod token_tree;

#[cfg(test)]
mod tests {
    use ascribe_core::registry::{Kind, plugins};

    /// `explain` shows what stands at the head of a plugin's module.
    #[test]
    fn every_environment_says_what_it_is() {
        let rows = plugins(Kind::Environment);
        assert!(rows.len() >= 6, "the catalogue is linked");
        for row in rows {
            assert!(!row.doc.is_empty(), "`{}` has no line `module:`", row.name);
        }
    }
}
