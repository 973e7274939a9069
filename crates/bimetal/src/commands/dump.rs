//! `bimetal dump`: everything that is written on the members of an idle group.

use anyhow::{Context, Result};
use bimetal_host::device::Access;
use bimetal_host::Reactor;
use bimetal_volume::inspect::{dump, DumpOptions, Node, Value};

use crate::cli::Dump;
use crate::output::Output;
use crate::{members, runstate};

pub(crate) fn run(args: Dump, output: Output) -> Result<()> {
    let explicit = members::parse_all(&args.members)?;
    // Members that are named may be copies.
    if let Some(group) = args.group.as_deref().filter(|_| explicit.is_empty()) {
        runstate::refuse_served(group)?;
    }
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let tree = reactor.block_on(async move {
        let found = members::open(&env, args.group.as_deref(), &explicit, Access::INSPECT).await?;
        let what = DumpOptions { entries: true, records: true };
        dump(env, found.devices(), what).await.with_context(|| found.cannot("shown"))
    })?;
    output.show(&node_json(&tree), || tree.to_text())
}

fn node_json(node: &Node) -> serde_json::Value {
    node.0.iter().map(|(name, value)| (name.clone(), value_json(value))).collect()
}

fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Number(n) => (*n).into(),
        // JSON numbers lose bits in many readers.
        Value::Hex(n) => format!("{n:#x}").into(),
        Value::Text(t) => t.clone().into(),
        Value::Bool(b) => (*b).into(),
        Value::Node(n) => node_json(n),
        Value::List(l) => l.iter().map(value_json).collect(),
    }
}
