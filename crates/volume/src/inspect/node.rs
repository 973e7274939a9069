//! A tree of named values, which the command line prints as text or JSON.

/// A value of a dump.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A bit mask or hash, shown in hexadecimal.
    Hex(u64),
    /// A text.
    Text(String),
    /// Yes or no.
    Bool(bool),
    /// Part of the tree.
    Node(Node),
    /// Several of a kind.
    List(Vec<Value>),
}

/// Named values in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node(pub Vec<(String, Value)>);

impl Node {
    pub(crate) fn number(mut self, name: &str, n: u64) -> Node {
        self.0.push((name.into(), Value::Number(n)));
        self
    }

    pub(crate) fn hex(mut self, name: &str, n: u64) -> Node {
        self.0.push((name.into(), Value::Hex(n)));
        self
    }

    pub(crate) fn text(mut self, name: &str, t: impl Into<String>) -> Node {
        self.0.push((name.into(), Value::Text(t.into())));
        self
    }

    pub(crate) fn flag(mut self, name: &str, b: bool) -> Node {
        self.0.push((name.into(), Value::Bool(b)));
        self
    }

    pub(crate) fn node(mut self, name: &str, n: Node) -> Node {
        self.0.push((name.into(), Value::Node(n)));
        self
    }

    pub(crate) fn list(mut self, name: &str, nodes: impl IntoIterator<Item = Node>) -> Node {
        self.0.push((name.into(), Value::List(nodes.into_iter().map(Value::Node).collect())));
        self
    }

    /// The tree as indented text, a line per value.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        for (name, value) in &self.0 {
            write_value(out, depth, name, value);
        }
    }
}

fn write_value(out: &mut String, depth: usize, name: &str, value: &Value) {
    use std::fmt::Write;
    let pad = "  ".repeat(depth);
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Number(n) => writeln!(out, "{pad}{name}: {n}"),
        Value::Hex(n) => writeln!(out, "{pad}{name}: {n:#x}"),
        Value::Text(t) => writeln!(out, "{pad}{name}: {t}"),
        Value::Bool(b) => writeln!(out, "{pad}{name}: {}", if *b { "yes" } else { "no" }),
        Value::Node(n) => {
            let done = writeln!(out, "{pad}{name}:");
            n.write(out, depth + 1);
            done
        }
        Value::List(l) => {
            for (i, v) in l.iter().enumerate() {
                write_value(out, depth, &format!("{name}[{i}]"), v);
            }
            Ok(())
        }
    };
}
