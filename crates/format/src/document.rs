//! What the tests need to hold `FORMAT.md` against the code: names, offsets and sizes of the fields of all structures.

/// A field of a structure on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the code.
    pub name: &'static str,
    /// First byte within the structure.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// Bytes of the field that `get` gives. A function, because a macro cannot name the type of a field.
pub(crate) fn size_of_field<T, F>(_get: impl Fn(&T) -> &F) -> usize {
    std::mem::size_of::<F>()
}

/// The fields of a structure, in order. They must cover it without gaps, so that none can be forgotten here.
macro_rules! fields {
    ($t:ident { $($f:ident),+ $(,)? }) => {{
        let all = vec![$($crate::document::Field {
            name: stringify!($f),
            offset: std::mem::offset_of!($t, $f),
            size: $crate::document::size_of_field(|t: &$t| &t.$f),
        }),+];
        let end = all.iter().fold(0, |at, f| {
            assert_eq!(f.offset, at, "field {} is out of order", f.name);
            at + f.size
        });
        assert_eq!(end, std::mem::size_of::<$t>(), "a field at the end is missing");
        all
    }};
}
pub(crate) use fields;

/// All structures of the format that are plain sequences of fields, by their name in `FORMAT.md`.
pub fn structures() -> Vec<(&'static str, Vec<Field>)> {
    let mut all = crate::label::raw::structures();
    all.push(("block head", crate::block::head_fields()));
    all.push(("lease", crate::lease::fields()));
    all
}
