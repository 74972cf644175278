//! JSON lines of values, for `longhaul share` and `share import`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul::SharedValue;
use serde_json::{Value, json};

use crate::{hex, json};

/// Returns the line of a value. If the value is not UTF-8, the line also has the field `value_hex`,
/// with the bytes of the value.
pub(super) fn value(key: &str, value: &SharedValue) -> String {
    let mut line = json!({"event": "value", "key": key, "version": value.version});
    json::put_path(&mut line, "value", Path::new(OsStr::from_bytes(&value.bytes)));
    line.to_string()
}

/// Returns the key and the value of a line.
pub(super) fn parse(line: &str) -> Result<(String, Vec<u8>), String> {
    let line: Value =
        serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
    let key = line["key"].as_str().ok_or("it has no `key`")?;
    let bytes = match line["value_hex"].as_str() {
        Some(digits) => hex::decode(digits).ok_or("its `value_hex` is not a hexadecimal number")?,
        None => line["value"].as_str().ok_or("it has no `value`")?.as_bytes().to_vec(),
    };
    Ok((key.to_owned(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_a_key_or_a_value_are_refused() {
        assert_eq!(parse(r#"{"key":"a","value":"x"}"#), Ok(("a".into(), b"x".to_vec())));
        assert_eq!(parse(r#"{"key":"a","value_hex":"61ff"}"#), Ok(("a".into(), b"a\xff".to_vec())));
        for bad in
            ["", "[]", r#"{"value":"x"}"#, r#"{"key":"a"}"#, r#"{"key":"a","value_hex":"é"}"#]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
