//! The values of `--scheme`: those of the hash table, and of counted and logged accesses.

use super::accesses::AccessScheme;
use super::hash_table::TableScheme;
use clap::ValueEnum;
use clap::builder::PossibleValue;

/// All of them, each once.
pub fn all() -> Vec<PossibleValue> {
    let tables = TableScheme::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let mut all: Vec<PossibleValue> = tables.collect();
    for value in AccessScheme::value_variants().iter().filter_map(ValueEnum::to_possible_value) {
        match all.iter_mut().find(|known| known.get_name() == value.get_name()) {
            Some(known) => {
                let helps = [known.get_help(), value.get_help()].map(|help| help.map(ToString::to_string));
                let help = helps.into_iter().flatten().collect::<Vec<_>>().join("; ");
                *known = known.clone().help(help);
            }
            None => all.push(value),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_is_there_once() {
        let names: Vec<String> = all().iter().map(|value| value.get_name().to_owned()).collect();
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(
            ["nearest", "aa-poll", "am-aggregated", "aa", "a-kv", "allreduce", "none"]
                .iter()
                .all(|name| names.iter().any(|known| known == name))
        );
    }
}
