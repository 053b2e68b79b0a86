//! What an agent can say.

/// A call, with what it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Looks something up.
    Search(String),
    /// Evaluates an expression.
    Calculate(String),
    /// Checks a statement.
    Verify(String),
    /// Gives the answer.
    Answer(String),
    /// Says whether the answer was right.
    Report(bool),
}

impl Call {
    /// The call that a text is, if it is one. Upper case counts as lower case, and `_` as a space.
    pub fn parse(text: &str) -> Option<Call> {
        let text = text.to_lowercase().replace('_', " ");
        let (tool, given) = text.trim().split_once(char::is_whitespace)?;
        let given = given.trim();
        match tool {
            "search" => Some(Call::Search(given.into())),
            "calculate" => Some(Call::Calculate(given.into())),
            "verify" => Some(Call::Verify(given.into())),
            "answer" => Some(Call::Answer(given.into())),
            "report" => match given {
                "right" => Some(Call::Report(true)),
                "wrong" => Some(Call::Report(false)),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        assert_eq!(Call::parse("search earth_radius"), Some(Call::Search("earth radius".into())));
        assert_eq!(Call::parse("  Search  Earth radius "), Some(Call::Search("earth radius".into())));
        assert_eq!(Call::parse("calculate 2 * 3"), Some(Call::Calculate("2 * 3".into())));
        assert_eq!(Call::parse("verify earth radius is 1"), Some(Call::Verify("earth radius is 1".into())));
        assert_eq!(Call::parse("answer unknown"), Some(Call::Answer("unknown".into())));
        assert_eq!(Call::parse("report right"), Some(Call::Report(true)));
        assert_eq!(Call::parse("report wrong"), Some(Call::Report(false)));
        for text in ["", "search", "answer ", "report", "report maybe", "report right wrong", "browse earth", "2 * 3"] {
            assert_eq!(Call::parse(text), None, "{text}");
        }
    }
}
