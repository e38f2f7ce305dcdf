//! Cutting a mini-batch to what fits into memory at once.
//!
//! Answers to one prompt stay neighbours: an engine that encodes a shared
//! prompt once does so, and its tokens are counted once. The micro-batches are
//! as few as the budget allows and nearly equal, so that none needs more memory
//! than it must.

use crate::math::karmarkar_karp;
use crate::types::Trajectory;

/// Splits trajectories into micro-batches of at most `budget` tokens and `most`
/// trajectories; one over the budget stands alone.
///
/// Trajectories without a policy token have no gradient and are left out.
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
    let limit = Limit { budget, most };
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    for group in order.chunk_by(|a, b| a.prompt() == b.prompt()) {
        let whole = Piece::new(group.to_vec());
        match limit.admits(whole.tokens, group.len()) {
            true => pieces.push(whole),
            false => pieces.extend(limit.cut(group)),
        }
    }
    limit.balanced(pieces)
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
    let pieces = groups.map(|group| Piece::new(group.to_vec())).collect();
    Limit { budget, most }.balanced(pieces)
}

/// Trajectories that stay together; they share a prompt.
struct Piece<'a> {
    members: Vec<&'a Trajectory>,
    tokens: usize,
}

impl<'a> Piece<'a> {
    fn new(members: Vec<&'a Trajectory>) -> Self {
        let prompt = members.first().map_or(0, |t| t.prompt().len());
        let responses: usize = members.iter().map(|t| t.response().len()).sum();
        Piece {
            tokens: prompt + responses,
            members,
        }
    }
}

/// What one micro-batch may hold.
#[derive(Clone, Copy)]
struct Limit {
    budget: usize,
    most: Option<usize>,
}

impl Limit {
    fn admits(&self, tokens: usize, members: usize) -> bool {
        tokens <= self.budget && members <= self.most.unwrap_or(usize::MAX)
    }

    /// Cuts a group that is over the limit into pieces that are not, where one
    /// answer alone is not either.
    fn cut<'a>(&self, group: &[&'a Trajectory]) -> Vec<Piece<'a>> {
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        for &t in group {
            let fits = |p: &&mut Piece<'_>| {
                self.admits(p.tokens + t.response().len(), p.members.len() + 1)
            };
            match pieces.last_mut().filter(fits) {
                Some(piece) => {
                    piece.tokens += t.response().len();
                    piece.members.push(t);
                }
                None => pieces.push(Piece::new(vec![t])),
            }
        }
        pieces
    }

    /// The smallest number of micro-batches that an even division keeps within
    /// the limit.
    fn balanced<'a>(&self, pieces: Vec<Piece<'a>>) -> Vec<Vec<&'a Trajectory>> {
        let costs: Vec<u64> = pieces.iter().map(|p| p.tokens as u64).collect();
        let total: usize = pieces.iter().map(|p| p.tokens).sum();
        let fewest = total
            .div_ceil(self.budget.max(1))
            .clamp(1, pieces.len().max(1));
        let within = |part: &Vec<usize>| {
            let sum = |of: fn(&Piece<'_>) -> usize| part.iter().map(|i| of(&pieces[*i])).sum();
            part.len() <= 1 || self.admits(sum(|p| p.tokens), sum(|p| p.members.len()))
        };
        let mut parts = (fewest..=pieces.len())
            .map(|k| karmarkar_karp(&costs, k, false))
            .find(|parts| parts.iter().all(within))
            .unwrap_or_default();
        parts.retain(|part| !part.is_empty());
        parts.sort();
        let members = |part: Vec<usize>| {
            let all = part.iter().flat_map(|i| pieces[*i].members.iter().copied());
            all.collect()
        };
        parts.into_iter().map(members).collect()
    }
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
        assert_eq!(sizes(22, None), [2, 4]);
        assert_eq!(sizes(5, None), [2, 2, 2]);
        assert_eq!(sizes(100, Some(3)), [2, 2, 2]);
    }

    #[test]
    fn micro_batches_are_nearly_equal() {
        let all: Vec<Trajectory> = (0..40)
            .map(|i| trajectory(i, 0, 10, 1 + (i as usize * 37) % 90))
            .collect();
        let refs: Vec<&Trajectory> = all.iter().collect();
        let batches = micro_batches(&refs, 600, None);
        let tokens: Vec<usize> = batches
            .iter()
            .map(|b| b.iter().map(|t| t.total_tokens()).sum())
            .collect();
        let total: usize = tokens.iter().sum();
        assert_eq!(tokens.len(), total.div_ceil(600));
        let (most, least) = (tokens.iter().max().unwrap(), tokens.iter().min().unwrap());
        assert!(*most <= 600 && most - least <= 10, "{tokens:?}");
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
