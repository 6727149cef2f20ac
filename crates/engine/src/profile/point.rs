//! Extension points: where in a pod's way a plugin takes part.

use std::ops::{Index, IndexMut};

/// One point, in the order in which a pod meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

/// How many points there are.
const COUNT: usize = 12;

impl Point {
    pub const ALL: [Point; COUNT] = [
        Point::PreEnqueue,
        Point::QueueSort,
        Point::PreFilter,
        Point::Filter,
        Point::PostFilter,
        Point::PreScore,
        Point::Score,
        Point::Reserve,
        Point::Permit,
        Point::PreBind,
        Point::Bind,
        Point::PostBind,
    ];

    /// The order in which kube-scheduler fills the points, and so the order of its complaints.
    pub(super) const FILLED: [Point; COUNT] = [
        Point::PreFilter,
        Point::Filter,
        Point::PostFilter,
        Point::Reserve,
        Point::PreScore,
        Point::Score,
        Point::PreBind,
        Point::Bind,
        Point::PostBind,
        Point::Permit,
        Point::PreEnqueue,
        Point::QueueSort,
    ];

    /// The name in configuration files.
    pub const fn key(self) -> &'static str {
        match self {
            Point::PreEnqueue => "preEnqueue",
            Point::QueueSort => "queueSort",
            Point::PreFilter => "preFilter",
            Point::Filter => "filter",
            Point::PostFilter => "postFilter",
            Point::PreScore => "preScore",
            Point::Score => "score",
            Point::Reserve => "reserve",
            Point::Permit => "permit",
            Point::PreBind => "preBind",
            Point::Bind => "bind",
            Point::PostBind => "postBind",
        }
    }

    /// The name in kube-scheduler's complaints.
    pub const fn type_name(self) -> &'static str {
        match self {
            Point::PreEnqueue => "PreEnqueuePlugin",
            Point::QueueSort => "QueueSortPlugin",
            Point::PreFilter => "PreFilterPlugin",
            Point::Filter => "FilterPlugin",
            Point::PostFilter => "PostFilterPlugin",
            Point::PreScore => "PreScorePlugin",
            Point::Score => "ScorePlugin",
            Point::Reserve => "ReservePlugin",
            Point::Permit => "PermitPlugin",
            Point::PreBind => "PreBindPlugin",
            Point::Bind => "BindPlugin",
            Point::PostBind => "PostBindPlugin",
        }
    }
}

/// A set of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointSet(u16);

impl PointSet {
    pub const fn of(points: &[Point]) -> PointSet {
        let mut bits = 0;
        let mut i = 0;
        while i < points.len() {
            bits |= 1 << points[i] as u16;
            i += 1;
        }
        PointSet(bits)
    }

    pub const fn contains(self, point: Point) -> bool {
        self.0 & (1 << point as u16) != 0
    }
}

/// One value for each point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerPoint<T>([T; COUNT]);

impl<T> PerPoint<T> {
    /// Every point with its value, in the order of [`Point::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Point, &T)> {
        Point::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Point> for PerPoint<T> {
    type Output = T;

    fn index(&self, point: Point) -> &T {
        &self.0[point as usize]
    }
}

impl<T> IndexMut<Point> for PerPoint<T> {
    fn index_mut(&mut self, point: Point) -> &mut T {
        &mut self.0[point as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_listed_and_filled_once() {
        let mut filled = Point::FILLED;
        filled.sort();
        assert_eq!(filled, Point::ALL);
        for (i, point) in Point::ALL.into_iter().enumerate() {
            assert_eq!(point as usize, i);
            assert_eq!(point.type_name().to_lowercase(), format!("{}plugin", point.key().to_lowercase()));
        }
    }

    #[test]
    fn a_set_holds_what_it_was_given() {
        let set = PointSet::of(&[Point::PreEnqueue, Point::PostBind]);
        let held: Vec<Point> = Point::ALL.into_iter().filter(|point| set.contains(*point)).collect();
        assert_eq!(held, [Point::PreEnqueue, Point::PostBind]);
    }
}
