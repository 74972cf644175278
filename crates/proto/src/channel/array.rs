//! Arrays of numbers as the content of a message, in NumPy's `.npy` format: `numpy.save` writes it,
//! `numpy.load` reads it.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The header is padded so that the data start at a multiple of this many bytes.
const ALIGN: usize = 64;
/// Maximum number of dimensions, as in NumPy 2.
const DIMENSIONS: usize = 64;
/// Maximum bytes of the header.
const HEADER: usize = 4_096;

/// An array within a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    /// The type of an element as NumPy writes it: byte order (`<` little-endian, `>` big-endian,
    /// `|` none), kind (`i`, `u`, `f`, `c`, `b`) and size in bytes. Example: `<f8`.
    pub dtype: String,
    /// The length of each dimension.
    pub shape: Vec<usize>,
    /// Whether the first index changes fastest.
    pub fortran_order: bool,
    /// The elements.
    pub data: &'a [u8],
}

/// Why bytes are not an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayError {
    /// Not in NumPy's format 1.0 or 2.0, or with a header of more than 4,096 bytes.
    Format,
    /// The element type is not a known number type.
    Type,
    /// The shape and the length of the data differ, or the shape has too many dimensions.
    Length,
}

impl core::fmt::Display for ArrayError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            ArrayError::Format => {
                "the message is not an array in NumPy's format 1.0 or 2.0, or has too long a header"
            }
            ArrayError::Type => "the element type of the array is not a known number type",
            ArrayError::Length => {
                "the shape of the array does not match the length of its data, or has more than \
                 64 dimensions"
            }
        })
    }
}

impl core::error::Error for ArrayError {}

/// A number type for the elements of an array.
pub trait Element: Copy {
    /// The type code: kind and size in bytes, without byte order. Example: `f8`.
    const KIND: &'static str;
    /// Reads an element from little-endian bytes.
    fn from_le(bytes: &[u8]) -> Self;
    /// Appends the element as little-endian bytes.
    fn to_le(self, out: &mut Vec<u8>);
}

macro_rules! elements {
    ($($number:ty: $kind:literal),*) => {$(
        impl Element for $number {
            const KIND: &'static str = $kind;

            fn from_le(bytes: &[u8]) -> $number {
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(bytes);
                <$number>::from_le_bytes(own)
            }

            fn to_le(self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
        }
    )*};
}
elements!(i8: "i1", i16: "i2", i32: "i4", i64: "i8", u8: "u1", u16: "u2", u32: "u4", u64: "u8",
    f32: "f4", f64: "f8");

/// Splits an element type such as `<f8` into whether it is big-endian, its type code (`f8`), and
/// its size in bytes.
fn dtype(text: &str) -> Option<(bool, &str, usize)> {
    let is_big = text.starts_with('>');
    let code = text.strip_prefix(['<', '>', '|'])?;
    let (kind, bytes) = code.split_at_checked(1)?;
    let size = bytes.parse::<usize>().ok()?;
    let is_known = match kind {
        "i" | "u" => [1, 2, 4, 8].contains(&size),
        "f" => [2, 4, 8].contains(&size),
        "c" => [8, 16].contains(&size),
        "b" => size == 1,
        _ => false,
    };
    is_known.then_some((is_big, code, size))
}

fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length))
}

impl<'a> Array<'a> {
    /// Parses the array in a message.
    ///
    /// # Errors
    /// [`ArrayError`] if the message is not a valid array.
    pub fn parse(message: &'a [u8]) -> Result<Array<'a>, ArrayError> {
        let rest = message.strip_prefix(MAGIC).ok_or(ArrayError::Format)?;
        let (length, rest) = match rest {
            [1, 0, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
            [2, 0, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
            _ => return Err(ArrayError::Format),
        };
        let (header, data) = rest.split_at_checked(length).ok_or(ArrayError::Format)?;
        let header = core::str::from_utf8(header).ok().filter(|header| header.len() <= HEADER);
        let (text, fortran_order, shape) = header.and_then(fields).ok_or(ArrayError::Format)?;
        let (_, _, size) = dtype(text).ok_or(ArrayError::Type)?;
        let bytes = elements(&shape).and_then(|count| count.checked_mul(size));
        if bytes != Some(data.len()) || shape.len() > DIMENSIONS {
            return Err(ArrayError::Length);
        }
        Ok(Array { dtype: text.to_owned(), shape, fortran_order, data })
    }

    /// Returns a message that holds `values` as an array of this shape.
    ///
    /// # Errors
    /// [`ArrayError::Length`]: the shape does not have this number of elements, or has too many
    /// dimensions.
    pub fn message<T: Element>(shape: &[usize], values: &[T]) -> Result<Vec<u8>, ArrayError> {
        if elements(shape) != Some(values.len()) || shape.len() > DIMENSIONS {
            return Err(ArrayError::Length);
        }
        let order = if size_of::<T>() == 1 { '|' } else { '<' };
        let lengths: String = shape.iter().map(|length| format!("{length}, ")).collect();
        let kind = T::KIND;
        let header =
            format!("{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({lengths}), }}");
        let before = MAGIC.len() + 4;
        let length = (before + header.len() + 1).next_multiple_of(ALIGN) - before - 1;
        let header = format!("{header:length$}\n");
        let mut out = Vec::with_capacity(before + header.len() + size_of_val(values));
        out.extend(MAGIC);
        out.extend([1, 0]);
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        values.iter().for_each(|value| value.to_le(&mut out));
        Ok(out)
    }

    /// Returns the elements in the order of the message; `None` if they are not of type `T`.
    pub fn values<T: Element>(&self) -> Option<Vec<T>> {
        let (is_big, _, size) = dtype(&self.dtype).filter(|(_, code, _)| *code == T::KIND)?;
        let value = |bytes: &[u8]| {
            if !is_big {
                return T::from_le(bytes);
            }
            let mut own = [0; 16];
            own[..size].copy_from_slice(bytes);
            own[..size].reverse();
            T::from_le(&own[..size])
        };
        Some(self.data.chunks_exact(size).map(value).collect())
    }
}

/// Parses type, order and shape in `{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}`.
fn fields(header: &str) -> Option<(&str, bool, Vec<usize>)> {
    let behind = |name: &str| {
        let at = header.find(name)? + name.len();
        Some(header[at..].trim_start().strip_prefix(':')?.trim_start())
    };
    let descr = behind("'descr'")?.strip_prefix('\'')?.split('\'').next()?;
    let order = behind("'fortran_order'")?;
    let fortran_order = match order {
        order if order.starts_with("False") => false,
        order if order.starts_with("True") => true,
        _ => return None,
    };
    let lengths = behind("'shape'")?.strip_prefix('(')?.split(')').next()?;
    let words = lengths.split(',').map(str::trim).filter(|word| !word.is_empty());
    let shape: Option<Vec<usize>> = words.map(|word| word.parse().ok()).collect();
    Some((descr, fortran_order, shape?))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// `numpy.save` of `numpy.array([[1.5, -2.0]], dtype='>f4')`.
    const BIG: &[u8] = b"\x93NUMPY\x01\x00\x76\x00{'descr': '>f4', 'fortran_order': False, \
        'shape': (1, 2), }                                                          \n\
        \x3f\xc0\x00\x00\xc0\x00\x00\x00";

    #[test]
    fn an_array_of_numpy_in_either_byte_order_is_read() {
        let array = Array::parse(BIG).unwrap();
        assert_eq!((&*array.dtype, &array.shape[..]), (">f4", &[1, 2][..]));
        assert_eq!(array.values::<f32>(), Some(vec![1.5, -2.0]));
        assert_eq!(array.values::<f64>(), None);
        assert_eq!(array.values::<i32>(), None);
        let written = Array::message(&[1, 2], &[1.5_f32, -2.0]).unwrap();
        assert_eq!((written.len(), written[10..].len() % 64), (128 + 8, 62));
        let array = Array::parse(&written).unwrap();
        assert_eq!((&*array.dtype, array.values::<f32>()), ("<f4", Some(vec![1.5, -2.0])));
    }

    #[test]
    fn length_fields_of_two_and_four_bytes_and_both_orders_of_elements_are_parsed() {
        let second = [MAGIC, &[2, 0, 0x76, 0, 0, 0], &BIG[10..]].concat();
        assert_eq!(Array::parse(&second), Array::parse(BIG));
        assert_eq!(Array::parse(BIG).map(|array| array.fortran_order), Ok(false));
        let columns = core::str::from_utf8(&BIG[10..128]).unwrap().replace("False", "True ");
        let columns = [&BIG[..10], columns.as_bytes(), &BIG[128..]].concat();
        assert_eq!(Array::parse(&columns).map(|array| array.fortran_order), Ok(true));
        let beyond = [MAGIC, &[2, 0, 0x76, 0, 1, 0], &BIG[10..]].concat();
        assert_eq!(Array::parse(&beyond), Err(ArrayError::Format));
    }

    #[test]
    fn a_boolean_takes_one_byte() {
        assert_eq!((dtype("|b1"), dtype("|b2")), (Some((false, "b1", 1)), None));
    }

    #[test]
    fn a_complex_number_takes_8_or_16_bytes() {
        let types = ["<c8", ">c16", "<c4"].map(dtype);
        assert_eq!(types, [Some((false, "c8", 8)), Some((true, "c16", 16)), None]);
    }

    #[test]
    fn a_parsed_array_has_the_shape_and_values_that_were_written() {
        for shape in [&[][..], &[0], &[6], &[2, 3], &[1, 1, 6], &[3, 0, 9]] {
            let count: usize = shape.iter().product();
            let values: Vec<u16> = (0..count as u16).collect();
            let message = Array::message(shape, &values).unwrap();
            let array = Array::parse(&message).unwrap();
            assert_eq!((&array.shape[..], array.values()), (shape, Some(values)));
        }
        assert_eq!(Array::message(&[2, 2], &[1_i8]), Err(ArrayError::Length));
    }

    #[test]
    fn bytes_that_are_not_an_array_are_refused() {
        let with = |from: &str, to: &str| {
            let text = BIG.to_vec();
            let at = text.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            let mut text = text;
            text.splice(at..at + from.len(), to.bytes());
            text
        };
        for end in 0..BIG.len() {
            assert!(Array::parse(&BIG[..end]).is_err(), "{end}");
        }
        for (from, to, why) in [
            (">f4", "|O8", ArrayError::Type),
            (">f4", ">f3", ArrayError::Type),
            (">f4", "\u{e9}4", ArrayError::Type),
            ("(1, 2)", "(1, 3)", ArrayError::Length),
            ("(1, 2)", "(1, x)", ArrayError::Format),
            ("False", "Maybe", ArrayError::Format),
            ("descr", "Descr", ArrayError::Format),
            ("\u{1}\0v", "\u{3}\0v", ArrayError::Format),
        ] {
            assert_eq!(Array::parse(&with(from, to)), Err(why), "{from} {to}");
        }
        let most = usize::MAX;
        let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({most}, 2)}}");
        let length = (header.len() as u16).to_le_bytes();
        let huge = [MAGIC, &[1, 0], &length, header.as_bytes()].concat();
        assert_eq!(Array::parse(&huge), Err(ArrayError::Length));
        let ones = "1, ".repeat(DIMENSIONS + 1);
        let header = format!("{{'descr': '|i1', 'fortran_order': False, 'shape': ({ones})}}");
        let length = (header.len() as u16).to_le_bytes();
        let deep = [MAGIC, &[1, 0], &length, header.as_bytes(), &[7]].concat();
        assert_eq!(Array::parse(&deep), Err(ArrayError::Length));
    }

    #[test]
    fn the_elements_begin_at_a_multiple_of_64_bytes() {
        for dimensions in 0..=DIMENSIONS {
            let message = Array::message(&vec![1; dimensions], &[7_u8]).unwrap();
            assert_eq!(Array::parse(&message).map(|array| array.shape.len()), Ok(dimensions));
            let (header, element) = message.split_at(message.len() - 1);
            assert_eq!((header.len() % ALIGN, element), (0, &[7][..]));
            assert_eq!(usize::from(u16::from_le_bytes([header[8], header[9]])), header.len() - 10);
            let text = core::str::from_utf8(&header[10..]).unwrap();
            let padding = text.strip_suffix('\n').unwrap();
            assert!(padding.len() - padding.trim_end_matches(' ').len() <= ALIGN, "{text}");
        }
    }

    #[test]
    fn an_error_says_which_part_of_the_array_is_wrong() {
        for (error, part) in [
            (ArrayError::Format, "format"),
            (ArrayError::Type, "element type"),
            (ArrayError::Length, "shape"),
        ] {
            assert!(alloc::string::ToString::to_string(&error).contains(part), "{error:?}");
        }
    }
}
