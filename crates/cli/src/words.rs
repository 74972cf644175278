//! A command line in one string, as in `-e 'ssh -J gate'`.

#[derive(Clone, Debug)]
pub(crate) struct SshCommand(pub(crate) Vec<String>);

impl SshCommand {
    pub(crate) fn parse(text: &str) -> Result<SshCommand, String> {
        split_words(text).map(SshCommand)
    }
}

/// Splits at blanks outside of quotes, and removes the quotes.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(open) = quote {
        return Err(format!("no closing {open}; write for example 'ssh -J gate'"));
    }
    words.extend(word);
    if words.is_empty() {
        return Err("no command; write for example 'ssh -J gate'".into());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_separate_words_and_quotes_join_them() {
        assert_eq!(split_words("ssh  -J gate").unwrap(), ["ssh", "-J", "gate"]);
        assert_eq!(
            split_words("ssh -o 'A b' \"\" x'y'z").unwrap(),
            ["ssh", "-o", "A b", "", "xyz"]
        );
    }

    #[test]
    fn an_open_quote_and_an_empty_command_are_refused() {
        assert!(split_words("ssh 'a").is_err());
        assert!(split_words("  ").is_err());
    }
}
