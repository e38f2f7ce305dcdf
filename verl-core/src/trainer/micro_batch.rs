//! Cutting a mini-batch to what fits into memory at once.

use crate::types::Trajectory;

/// Splits trajectories into micro-batches of at most `budget` tokens and `most`
/// trajectories; one over the budget stands alone.
///
/// Answers to one prompt stay neighbours, longest first: an engine that
/// encodes a shared prompt once does so, and answers of similar length meet.
/// A prompt is counted once per micro-batch. Trajectories without a policy
/// token have no gradient and are left out.
pub fn micro_batches<'a>(
    trajectories: &[&'a Trajectory],
    budget: usize,
    most: Option<usize>,
) -> Vec<Vec<&'a Trajectory>> {
    let mut order: Vec<&Trajectory> = trajectories
        .iter()
        .copied()
        .filter(|t| t.policy_tokens() > 0)
        .collect();
    order.sort_by_key(|t| (t.group(), std::cmp::Reverse(t.response().len()), t.sample()));
    let mut batches: Vec<Vec<&Trajectory>> = Vec::new();
    let mut tokens = 0;
    for t in order {
        let shares = batches
            .last()
            .and_then(|b| b.last())
            .is_some_and(|last| last.prompt() == t.prompt());
        let cost = t.response().len() + if shares { 0 } else { t.prompt().len() };
        match batches
            .last_mut()
            .filter(|b| tokens + cost <= budget && b.len() < most.unwrap_or(usize::MAX))
        {
            Some(batch) => {
                batch.push(t);
                tokens += cost;
            }
            None => {
                batches.push(vec![t]);
                tokens = t.total_tokens();
            }
        }
    }
    batches
}

/// The same with the answers to one prompt kept together, for losses that
/// compare them; a group over the budget stands alone.
pub fn whole_group_batches<'a>(
    trajectories: &[&'a Trajectory],
    budget: usize,
    most: Option<usize>,
) -> Vec<Vec<&'a Trajectory>> {
    let mut all = trajectories.to_vec();
    all.sort_by_key(|t| (t.group(), t.sample()));
    let groups = all
        .chunk_by(|a, b| a.group() == b.group())
        .filter(|group| group.iter().any(|t| t.policy_tokens() > 0));
    let cost = |group: &[&Trajectory]| {
        let prompt = group.first().map_or(0, |t| t.prompt().len());
        prompt + group.iter().map(|t| t.response().len()).sum::<usize>()
    };
    let mut batches: Vec<Vec<&Trajectory>> = Vec::new();
    let mut tokens = 0;
    for group in groups {
        let fits = |batch: &&mut Vec<&Trajectory>| {
            tokens + cost(group) <= budget
                && batch.len() + group.len() <= most.unwrap_or(usize::MAX)
        };
        match batches.last_mut().filter(fits) {
            Some(batch) => {
                tokens += cost(group);
                batch.extend(group);
            }
            None => {
                tokens = cost(group);
                batches.push(group.to_vec());
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FinishReason, GroupId, TrajectoryParts};

    fn trajectory(group: u64, sample: usize, prompt: usize, response: usize) -> Trajectory {
        Trajectory::new(TrajectoryParts {
            group: GroupId(group),
            sample,
            prompt: vec![group as u32; prompt].into(),
            response: vec![1; response],
            response_mask: vec![true; response],
            finish: FinishReason::Stop,
            weight_version: 0,
        })
        .unwrap()
    }

    fn lengths(batches: &[Vec<&Trajectory>]) -> Vec<Vec<usize>> {
        batches
            .iter()
            .map(|b| b.iter().map(|t| t.response().len()).collect())
            .collect()
    }

    #[test]
    fn shared_prompts_are_counted_once() {
        let all: Vec<Trajectory> = [3, 5, 4]
            .into_iter()
            .enumerate()
            .map(|(i, n)| trajectory(0, i, 10, n))
            .collect();
        let refs: Vec<&Trajectory> = all.iter().collect();
        assert_eq!(lengths(&micro_batches(&refs, 22, None)), [vec![5, 4, 3]]);
        assert_eq!(
            lengths(&micro_batches(&refs, 21, None)),
            [vec![5, 4], vec![3]]
        );
        assert_eq!(
            lengths(&micro_batches(&refs, 22, Some(2))),
            [vec![5, 4], vec![3]]
        );
    }

    #[test]
    fn nothing_is_lost_but_empty_answers() {
        let all: Vec<Trajectory> = (0..20)
            .map(|i| trajectory(i / 4, (i % 4) as usize, 3, (i % 7) as usize))
            .collect();
        let refs: Vec<&Trajectory> = all.iter().collect();
        let kept: usize = micro_batches(&refs, 9, None).iter().map(Vec::len).sum();
        assert_eq!(
            kept,
            refs.iter().filter(|t| !t.response().is_empty()).count()
        );
    }

    #[test]
    fn whole_groups_stay_together() {
        let all: Vec<Trajectory> = (0..6)
            .map(|i| trajectory(i / 2, (i % 2) as usize, 3, 4))
            .collect();
        let refs: Vec<&Trajectory> = all.iter().collect();
        let sizes = |budget, most| -> Vec<usize> {
            let batches = whole_group_batches(&refs, budget, most);
            batches.iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(22, None), [4, 2]);
        assert_eq!(sizes(5, None), [2, 2, 2]);
        assert_eq!(sizes(100, Some(3)), [2, 2, 2]);
    }

    #[test]
    fn a_trajectory_over_the_budget_stands_alone() {
        let all = [trajectory(0, 0, 5, 50), trajectory(0, 1, 5, 2)];
        let refs: Vec<&Trajectory> = all.iter().collect();
        assert_eq!(
            lengths(&micro_batches(&refs, 10, None)),
            [vec![50], vec![2]]
        );
    }
}
