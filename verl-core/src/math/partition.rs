//! Dividing work evenly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Divides items into `parts` of nearly equal total cost by the largest
/// differencing method (Karmarkar and Karp 1982, for more than two parts).
/// Returns the indices of each part, in ascending order.
///
/// With `equal_sizes` every part gets the same number of items; their number
/// must then be a multiple of `parts`.
///
/// # Panics
/// When `parts` is 0, or `equal_sizes` is asked for and impossible.
///
/// # Example
/// ```
/// use verl_core::math::karmarkar_karp;
///
/// // 7 + 5 + 4 and 8 + 6
/// assert_eq!(karmarkar_karp(&[8, 7, 6, 5, 4], 2, false), [vec![1, 3, 4], vec![0, 2]]);
/// ```
pub fn karmarkar_karp(costs: &[u64], parts: usize, equal_sizes: bool) -> Vec<Vec<usize>> {
    assert!(parts > 0, "work must be divided into at least one part");
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|i| (costs[*i], *i));
    let step = match equal_sizes {
        true => {
            assert_eq!(
                costs.len() % parts,
                0,
                "items cannot be divided into equal numbers"
            );
            parts
        }
        false => 1,
    };
    let mut heap: BinaryHeap<Division> = order
        .chunks(step)
        .map(|items| Division::new(items, costs, parts))
        .collect();
    while let (Some(a), Some(b)) = (heap.pop(), heap.pop()) {
        match heap.is_empty() {
            true => return a.merged(b).indices(),
            false => heap.push(a.merged(b)),
        }
    }
    // One item (or one of each part), or none.
    let whole = order.chunks(step).next().unwrap_or_default();
    Division::new(whole, costs, parts).indices()
}

/// Some items, divided: total cost and members of each part, largest first.
#[derive(Debug, PartialEq, Eq)]
struct Division(Vec<(u64, Vec<usize>)>);

impl Division {
    /// Each item in a part of its own.
    fn new(items: &[usize], costs: &[u64], parts: usize) -> Self {
        let alone = items.iter().map(|i| (costs[*i], vec![*i]));
        let mut division: Vec<_> = alone.collect();
        division.resize(parts, (0, Vec::new()));
        Division(division).sorted()
    }

    /// The largest part of one joins the smallest of the other.
    fn merged(self, other: Division) -> Self {
        let pairs = self.0.into_iter().zip(other.0.into_iter().rev());
        let join = |((a, mut items), (b, more)): ((u64, Vec<usize>), (u64, Vec<usize>))| {
            items.extend(more);
            (a + b, items)
        };
        Division(pairs.map(join).collect()).sorted()
    }

    fn sorted(mut self) -> Self {
        self.0
            .sort_by_key(|(cost, items)| Reverse((*cost, items.len())));
        self
    }

    fn spread(&self) -> u64 {
        let cost = |part: Option<&(u64, Vec<usize>)>| part.map_or(0, |p| p.0);
        cost(self.0.first()) - cost(self.0.last())
    }

    fn indices(self) -> Vec<Vec<usize>> {
        let part = |(_, mut items): (u64, Vec<usize>)| {
            items.sort_unstable();
            items
        };
        self.0.into_iter().map(part).collect()
    }
}

impl Ord for Division {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |d: &Division| (d.spread(), d.0.first().map(|p| p.0));
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Division {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::{Path, PathBuf};

    fn reference() -> PathBuf {
        match std::env::var_os("VERL_REFERENCE_DIR") {
            Some(dir) => dir.into(),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference"),
        }
    }

    #[test]
    fn parts_are_as_even_as_the_references() {
        let path = reference().join("golden/algos/seqlen_partition.json");
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let numbers = |v: &Value| -> Vec<u64> {
            let data = v["data"].as_array().unwrap().iter();
            data.map(|x| x.as_u64().unwrap()).collect()
        };
        let mut checked = 0;
        for case in file["cases"].as_array().unwrap() {
            let config = &case["config"];
            let own_method = config["method"] == "karmarkar_karp" && config["group"].is_null();
            if !own_method || !case["inputs"]["uid"].is_null() {
                continue;
            }
            let lengths = numbers(&case["inputs"]["lengths"]);
            let workload = config["objective"] == "workload";
            let cost = |l: &u64| if workload { 24576 * l + l * l } else { *l };
            let costs: Vec<u64> = lengths.iter().map(cost).collect();
            let k = config["k_partitions"].as_u64().unwrap() as usize;
            let equal = config["equal_size"].as_bool().unwrap_or(false);
            let parts = karmarkar_karp(&costs, k, equal);
            let mut all = parts.concat();
            all.sort_unstable();
            assert_eq!(
                all,
                (0..costs.len()).collect::<Vec<_>>(),
                "{}",
                case["desc"]
            );
            assert!(parts.iter().all(|p| !p.is_empty()));
            assert!(!equal || parts.iter().all(|p| p.len() == costs.len() / k));
            let sums: Vec<u64> = parts
                .iter()
                .map(|p| p.iter().map(|i| costs[*i]).sum())
                .collect();
            let spread = sums.iter().max().unwrap() - sums.iter().min().unwrap();
            let want = numbers(&case["outputs"]["spread"])[0];
            assert!(
                spread <= want,
                "{}: spread {spread}, not {want}",
                case["desc"]
            );
            checked += 1;
        }
        assert!(checked >= 8, "{checked} cases");
    }

    #[test]
    fn few_items_leave_parts_empty() {
        assert_eq!(
            karmarkar_karp(&[], 2, false),
            [vec![], vec![]] as [Vec<usize>; 2]
        );
        assert_eq!(karmarkar_karp(&[5], 2, false), [vec![0], vec![]]);
        assert_eq!(
            karmarkar_karp(&[5, 6], 3, false),
            [vec![1], vec![0], vec![]]
        );
    }
}
