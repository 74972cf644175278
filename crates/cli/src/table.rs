//! Text tables.

/// Aligns rows of equal length: the first `left` columns to the left, the other columns to the
/// right.
pub(crate) fn lines(rows: &[Vec<String>], left: usize) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let pad = |(column, cell): (usize, &String)| match column {
        word if word < left => format!("{cell:<0$}", widths[word]),
        number => format!("{cell:>0$}", widths[number]),
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().enumerate().map(pad).collect();
        format!("  {}", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_columns_are_left_aligned_and_the_others_right_aligned() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["flow", "by", "rate"]), row(["é", "tcp", "12.5"]), row(["c", "tcp", ""])];
        assert_eq!(lines(&rows, 2), ["  flow  by   rate", "  é     tcp  12.5", "  c     tcp"]);
        assert!(lines(&[], 1).is_empty());
    }
}
