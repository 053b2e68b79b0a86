//! The union of dependency features in this workspace, so that every command builds burn once.
