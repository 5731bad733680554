"""Slow twins of the fast kernels, in plain Python and numpy."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray


def topk(
    shards: list[Any], X: Any, top_k: int, n_labels: int, *, fused: bool
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Twin of linear_topk: adds features in rising order in float32, one label at a time.

    `fused` rounds a product and sum once, as FMA instructions do: exact in float64, up to one double rounding.
    """
    labels = np.full((X.shape[0], top_k), -1, np.int32)
    scores = np.full((X.shape[0], top_k), -np.inf, np.float32)
    for i in range(X.shape[0]):
        total = np.full(n_labels, -np.inf, np.float32)
        for shard in shards:
            total[shard.label_ids] = score_row(shard, X.indices, X.data, X.indptr[i], X.indptr[i + 1], fused)
        order = sorted(np.flatnonzero(total > -np.inf), key=lambda label: (-total[label], label))[:top_k]
        labels[i, : len(order)] = order
        scores[i, : len(order)] = total[order]
    return labels, scores


def score_row(shard: Any, indices: Any, data: Any, begin: int, end: int, fused: bool) -> NDArray[np.float32]:
    acc = np.array(shard.bias, np.float32)
    for j in range(begin, end):
        x = np.float32(data[j] * np.float32(shard.scale))
        run = slice(int(shard.indptr[indices[j]]), int(shard.indptr[indices[j] + 1]))
        w = shard.weights[run].astype(np.float32)
        at = labels_of(shard, indices[j])
        if fused:
            acc[at] = (w.astype(np.float64) * np.float64(x) + acc[at].astype(np.float64)).astype(np.float32)
        else:
            acc[at] = (w * x).astype(np.float32) + acc[at]
    return acc


def labels_of(shard: Any, feature: int) -> NDArray[np.int64]:
    """Twin of unpack_positions, for one feature: which labels its weights belong to."""
    positions = shard.positions[int(shard.position_ptr[feature]) : int(shard.position_ptr[feature + 1])]
    nnz = int(shard.indptr[feature + 1]) - int(shard.indptr[feature])
    if nnz < -(-len(shard.label_ids) // 16):
        return positions.astype(np.int64)
    return np.array(
        [16 * c + b for c, mask in enumerate(positions) for b in range(16) if int(mask) >> b & 1], np.int64
    )


def unit_rows(X: Any) -> Any:
    """Twin of normalize_rows."""
    X = X.copy()
    for i in range(X.shape[0]):
        row = X.data[X.indptr[i] : X.indptr[i + 1]].astype(np.float64)
        length = np.sqrt(sum(value * value for value in row.tolist()))
        if length > 0:
            X.data[X.indptr[i] : X.indptr[i + 1]] = row * (1 / length)
    return X


def nearest_float32(text: str) -> float:
    """The float32 nearest to a decimal number, ties to even, by exact fractions."""
    exact = Fraction(text)
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact))
    if not np.isfinite(guess):
        return float(guess)
    with np.errstate(all="ignore"):
        candidates = [
            np.nextafter(guess, np.float32(-np.inf)),
            guess,
            np.nextafter(guess, np.float32(np.inf)),
        ]
    finite = [value for value in candidates if np.isfinite(value)]
    return float(min(finite, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.int32)) & 1)))


def parse_xc(text: str, first: int = 0) -> list[tuple[list[int], dict[int, float]]]:
    """Twin of the text parser for well-formed rows: (labels, {feature: value}) per row."""
    rows = []
    for line in text.splitlines():
        tokens = line.split()
        labels = []
        if tokens and ":" not in tokens[0] and not line[0].isspace():
            labels = sorted(int(label) - first for label in tokens.pop(0).split(","))
        pairs = (token.split(":") for token in tokens)
        rows.append((labels, {int(f) - first: nearest_float32(v) for f, v in pairs}))
    return rows


def svm_objective(X: Any, y: NDArray[np.bool_], w: Any, b: float, C: float, bias: float, cost: float = 1.0) -> float:
    """DiSMEC's objective for one label, in float64. w is dense; b is the weight of the constant feature `bias`."""
    return float(0.5 * (w @ w + b * b)) + svm_loss(X, y, w, b, C, bias, cost)


def svm_loss(X: Any, y: NDArray[np.bool_], w: Any, b: float, C: float, bias: float, cost: float = 1.0) -> float:
    s = np.where(y, 1.0, -1.0)
    m = np.maximum(0, 1 - s * (X.astype(np.float64) @ w + b * bias))
    return float(C * np.sum(np.where(y, cost, 1.0) * m * m))


def l1_svm_objective(X: Any, y: NDArray[np.bool_], w: Any, b: float, C: float, bias: float) -> float:
    """The same with an L1 penalty."""
    return float(np.abs(w).sum() + abs(b)) + svm_loss(X, y, w, b, C, bias)


def svm_gradient(
    X: Any, y: NDArray[np.bool_], w: Any, b: float, C: float, bias: float, cost: float = 1.0, row_costs: Any = 1.0
) -> tuple[NDArray[np.float64], float]:
    """Its gradient: w + 2C Σ over the rows inside the margin of c_i m_i (-s_i) x_i."""
    s = np.where(y, 1.0, -1.0)
    m = np.maximum(0, 1 - s * (X.astype(np.float64) @ w + b * bias))
    factor = -2 * C * row_costs * np.where(y, cost, 1.0) * m * s
    return w + X.astype(np.float64).T @ factor, float(b + bias * factor.sum())


def ppd_primal(
    X: Any,
    y: NDArray[np.bool_],
    w: Any,
    b: float,
    lambda_: float,
    tau: float,
    bias: float = 1.0,
    squared: bool = True,
) -> float:
    """PPDSparse's objective (9) for one label, in float64. w is dense; b is the weight of the constant feature."""
    s = np.where(y, 1.0, -1.0)
    violation = np.maximum(0, 1 - s * (X.astype(np.float64) @ w + b * bias))
    loss = 0.5 * np.sum(violation**2) if squared else np.sum(violation)
    return float(lambda_ * np.abs(w).sum() + tau / 2 * (w @ w + b * b) + loss)


def ppd_dual(
    X: Any, y: NDArray[np.bool_], alpha: Any, lambda_: float, tau: float, bias: float, squared: bool
) -> tuple[float, NDArray[np.float64], float]:
    """Its dual (10), to be minimised, and the weights that belong to alpha: (value, w, b)."""
    s = np.where(y, 1.0, -1.0)
    v = X.astype(np.float64).T @ (alpha * s)
    w = np.sign(v) * np.maximum(np.abs(v) - lambda_, 0) / tau
    b = float(bias * (alpha @ s) / tau)
    value = tau / 2 * (w @ w + b * b) - alpha.sum() + (0.5 * alpha @ alpha if squared else 0)
    return float(value), w, b


def ppd_solve(
    X: Any,
    y: NDArray[np.bool_],
    lambda_: float,
    tau: float,
    bias: float = 1.0,
    squared: bool = True,
    epochs: int = 500,
) -> NDArray[np.float64]:
    """Twin of solve_ppd for one label: coordinate descent over every row, in order. Returns alpha."""
    X = X.toarray().astype(np.float64)
    X = np.hstack([X, np.full((len(X), 1), bias)])
    limit = np.append(np.full(X.shape[1] - 1, lambda_), 0)
    s = np.where(y, 1.0, -1.0)
    curvature = (X**2).sum(axis=1) / tau + (1 if squared else 0)
    alpha, v = np.zeros(len(X)), np.zeros(X.shape[1])
    for _ in range(epochs):
        for i in range(len(X)):
            w = np.sign(v) * np.maximum(np.abs(v) - limit, 0) / tau
            slope = s[i] * (X[i] @ w) - 1 + (alpha[i] if squared else 0)
            new = max(alpha[i] - slope / curvature[i], 0) if curvature[i] > 0 else 1.0
            new = new if squared else min(new, 1.0)
            v += (new - alpha[i]) * s[i] * X[i]
            alpha[i] = new
    return alpha


def solve_qp(a: Any, equal: Any, at_most: Any, limits: Any) -> NDArray[np.float64]:
    """The point nearest to `a` with equal @ z = 0 and at_most @ z <= limits: tries every set of inequalities that may
    hold with equality, solves the linear system of each, and takes the best point that breaks no rule."""
    n, m = len(a), len(limits)
    best, nearest = np.inf, None
    for chosen in range(2**m):
        tight = [i for i in range(m) if chosen >> i & 1]
        A = np.vstack([equal, at_most[tight]])
        rhs = np.concatenate([a, np.zeros(len(equal)), limits[tight]])
        system = np.block([[np.eye(n), A.T], [A, np.zeros((len(A), len(A)))]])
        z = np.linalg.lstsq(system, rhs, rcond=None)[0][:n]
        scale = 1e-9 * (1 + np.abs(a).max())
        feasible = (np.abs(A @ z - rhs[n:]) <= scale).all() and (at_most @ z <= limits + scale).all()
        if feasible and (distance := float(((z - a) ** 2).sum())) < best:
            best, nearest = distance, z
    return nearest


def project_by_intervals(b: Any, c: Any, C: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """PD-Sparse's Algorithm 2 as it is printed: every interval between two break points, the best of them."""
    sides = []
    for values in (np.asarray(b, np.float64), np.asarray(c, np.float64)):
        falling = np.sort(values)[::-1]
        sums = np.cumsum(falling)
        sides.append((falling, sums, sums - np.arange(1, len(values) + 1) * falling))
    points = np.unique(np.clip(np.concatenate([[0, C], sides[0][2], sides[1][2]]), 0, C))
    best = (np.inf, 0.0, 0, 0)
    for left, right in zip(points, np.append(points[1:], C), strict=True):
        (b_sorted, S_b, D_b), (c_sorted, S_c, D_c) = sides
        n, m = int((D_b <= left).sum()), int((D_c <= left).sum())
        t = np.clip((n * S_c[m - 1] + m * S_b[n - 1]) / (n + m), left, right)
        value = (b_sorted[n:] ** 2).sum() + (c_sorted[m:] ** 2).sum()
        value += (S_b[n - 1] - t) ** 2 / n + (S_c[m - 1] - t) ** 2 / m
        if value < best[0]:
            best = (value, t, n, m)
    _, t, n, m = best
    x = np.maximum(b + (t - sides[0][1][n - 1]) / n, 0)
    y = np.maximum(c + (t - sides[1][1][m - 1]) / m, 0)
    return x, y


def pd_primal(X: Any, Y: Any, W: Any, lambda_: float, C: float) -> float:
    """PD-Sparse's objective (13). Y is dense; W is labels x features, dense. Labels no row has are left out."""
    Z = np.asarray(X.astype(np.float64) @ W.T)
    Y, Z = Y[:, Y.any(axis=0)], Z[:, Y.any(axis=0)]
    counts = Y.any(axis=1) & ~Y.all(axis=1)
    highest = np.where(Y[counts], -np.inf, Z[counts]).max(axis=1)
    lowest = np.where(Y[counts], Z[counts], np.inf).min(axis=1)
    return float(0.5 * (W**2).sum() + lambda_ * np.abs(W).sum() + C * np.maximum(0, 1 + highest - lowest).sum())


def pd_dual(X: Any, Y: Any, alpha: Any, lambda_: float) -> tuple[float, NDArray[np.float64]]:
    """Its dual (14), to be minimised, and the weights that belong to alpha (rows x labels, sparse): (value, W)."""
    alpha = alpha.astype(np.float64)
    V = (alpha.T @ X.astype(np.float64)).toarray()
    W = np.sign(V) * np.maximum(np.abs(V) - lambda_, 0)
    return float(0.5 * (W**2).sum() + alpha.toarray()[~Y].sum()), W


def pd_solve(X: Any, Y: Any, lambda_: float, C: float, passes: int, seed: int = 0) -> NDArray[np.float64]:
    """Twin of PdSolver: Algorithm 1 with one search before every step, in float64. Returns alpha."""
    X = X.toarray().astype(np.float64)
    alpha = np.zeros(Y.shape)
    trained = Y.any(axis=0)
    rng = np.random.default_rng(seed)
    V = np.zeros((Y.shape[1], X.shape[1]))
    for _ in range(passes):
        for i in rng.permutation(len(X)):
            positive, negative = np.flatnonzero(Y[i]), np.flatnonzero(~Y[i] & trained)
            Q = X[i] @ X[i]
            if len(positive) == 0 or len(negative) == 0 or Q == 0:
                continue
            z = (np.sign(V) * np.maximum(np.abs(V) - lambda_, 0)) @ X[i]
            best = negative[np.argmax(z[negative])]
            active = np.union1d(negative[alpha[i, negative] < 0], best)
            x, y = project_by_intervals(
                (z[active] + 1) / Q - alpha[i, active], alpha[i, positive] - z[positive] / Q, C
            )
            new = np.zeros(Y.shape[1])
            new[active], new[positive] = -x, y
            V += np.outer(new - alpha[i], X[i])
            alpha[i] = new
    return alpha


def logistic_objective(
    X: Any, y: NDArray[np.bool_], w: Any, b: float, C: float, bias: float, cost: float = 1.0
) -> float:
    """The same with logistic loss."""
    s = np.where(y, 1.0, -1.0)
    u = -s * (X.astype(np.float64) @ w + b * bias)
    return float(0.5 * (w @ w + b * b) + C * np.sum(np.where(y, cost, 1.0) * np.logaddexp(0, u)))


def logistic_gradient(
    X: Any, y: NDArray[np.bool_], w: Any, b: float, C: float, bias: float, cost: float = 1.0
) -> tuple[NDArray[np.float64], float]:
    """Its gradient: w + C Σ_i c_i σ(u_i) (-s_i) x_i, u = -s (w·x + b)."""
    s = np.where(y, 1.0, -1.0)
    u = -s * (X.astype(np.float64) @ w + b * bias)
    factor = -C * np.where(y, cost, 1.0) * s / (1 + np.exp(-u))
    return w + X.astype(np.float64).T @ factor, float(b + bias * factor.sum())


def l1_objective(X: Any, sign: Any, cost: Any, w: Any, loss: str) -> float:
    """|w|₁ + Σ cost · loss(sign · w·x), in float64."""
    m = sign * (X.astype(np.float64) @ np.asarray(w, np.float64))
    values = np.logaddexp(0, -m) if loss == "logistic" else np.maximum(0, 1 - m) ** 2
    return float(np.abs(w).sum() + np.sum(cost * values))


def rank_sides(Y: Any, delta: Any, gains: Any, ideal: bool = True, times: Any = None) -> NDArray[np.float64]:
    """Twin of FastXML's ranking step: what each label is worth where it stands, on the sides -1 and +1.

    A side ranks its labels by the sum of its rows' I(y), each as many `times` as it counts, ties by id; labels it
    lacks come after, by id.
    """
    Y = np.asarray(Y)
    times = np.ones(len(Y)) if times is None else times
    worth = np.zeros((2, Y.shape[1]))
    for side, sign in enumerate((-1, 1)):
        score = np.zeros(Y.shape[1])
        for i in np.flatnonzero(delta == sign):
            score[Y[i] > 0] += times[i] * inverse_ideal(int(Y[i].sum()), ideal)
        key = (score * gains).astype(np.float32)
        present = Y.any(axis=0)
        order = sorted(np.flatnonzero(present), key=lambda label: (-key[label], label))
        for place, label in enumerate(order):
            worth[side, label] = gains[label] / np.log2(place + 2)
    return worth


def inverse_ideal(n: int, ideal: bool = True) -> float:
    """I(y) of a row with n labels."""
    return 1 / sum(1 / np.log2(place + 2) for place in range(n)) if n and ideal else float(n > 0)


def assign_sides(Y: Any, delta: Any, worth: Any, ideal: bool = True) -> NDArray[np.int8]:
    """Twin of FastXML's step for δ while w is 0: each row to the side whose ranking serves it better."""
    out = np.array(delta, np.int8)
    for i, row in enumerate(np.asarray(Y)):
        gain = (worth @ row) * inverse_ideal(int(row.sum()), ideal)
        if abs(gain[1] - gain[0]) > 1e-12:
            out[i] = 1 if gain[1] > gain[0] else -1
    return out


def split_rows(Y: Any, delta: Any, gains: Any, ideal: bool = True, times: Any = None) -> NDArray[np.int8]:
    """Rankings and sides in turn, until no row moves."""
    while True:
        moved = assign_sides(Y, delta, rank_sides(Y, delta, gains, ideal, times), ideal)
        if np.array_equal(moved, delta):
            return moved
        delta = moved


def forest_scores(trees: list[Any], X: Any, n_labels: int) -> NDArray[np.float64]:
    """Twin of forest_topk: the mean of the leaves each row falls into, n_rows x n_labels."""
    dense = np.hstack([X.toarray(), np.full((X.shape[0], 1), trees[0].bias)]).astype(np.float64)
    scores = np.zeros((X.shape[0], n_labels))
    for tree in trees:
        features = tree.features()
        for i, x in enumerate(dense):
            node = 0 if len(tree.children) else -1
            while node >= 0:
                run = slice(int(tree.weight_ptr[node]), int(tree.weight_ptr[node + 1]))
                score = tree.weights[run].astype(np.float64) @ x[features[run]]
                node = int(tree.children[2 * node + (0 if score > 0 else 1)])
            run = slice(int(tree.leaf_ptr[~node]), int(tree.leaf_ptr[~node + 1]))
            scores[i, tree.leaf_labels[run]] += tree.leaf_scores[run] / 65535 * tree.scale
    return scores / len(trees)


def tfidf(
    texts: list[str], *, ngram_range=(1, 1), min_df=1, max_df=1.0, max_features=None, sublinear_tf=False,
    use_idf=True, smooth_idf=True, norm="l2", lowercase=True, token_pattern=r"(?u)\b\w\w+\b", stop_words=None,
) -> tuple[list[str], NDArray[np.float64]]:  # fmt: skip
    """Twin of TermCounter: (terms, dense rows), with Python's own strings, patterns and sort."""
    rows = []
    for text in texts:
        words = re.findall(token_pattern, text.lower() if lowercase else text)
        words = [word for word in words if word not in (stop_words or ())]
        counts: Counter[str] = Counter()
        for n in range(ngram_range[0], ngram_range[1] + 1):
            counts.update(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
        rows.append(counts)
    n_rows_with = Counter(term for row in rows for term in row)
    n_times = sum(rows, Counter())
    low, high = (df * len(texts) if isinstance(df, float) else df for df in (min_df, max_df))
    terms = sorted(term for term, n in n_rows_with.items() if low <= n <= high)
    terms = sorted(sorted(terms, key=lambda term: -n_times[term])[:max_features])
    X = np.array([[row[term] for term in terms] for row in rows], dtype=float).reshape(len(rows), len(terms))
    if sublinear_tf:
        X[X > 0] = 1 + np.log(X[X > 0])
    if use_idf:
        one = int(smooth_idf)
        X *= [1 + np.log((len(texts) + one) / (n_rows_with[term] + one)) for term in terms]
    if norm is not None:
        length = np.sqrt((X**2).sum(axis=1)) if norm == "l2" else X.sum(axis=1)
        X /= np.where(length == 0, 1, length)[:, None]
    return terms, X


def hash_term(term: str) -> int:
    """Twin of hash_term: the hash in the slots of a saved vocabulary."""

    def mix(x: int) -> int:
        x = x * 0x9E3779B97F4A7C15 % 2**64
        return x ^ (x >> 32)

    content = term.encode("utf-8", "surrogatepass")
    state = mix(len(content) + 1)
    n_whole = len(content) // 8 * 8
    for i in range(0, n_whole, 8):
        state = mix(state ^ int.from_bytes(content[i : i + 8], "little"))
    tail = content[n_whole:]
    if len(tail) >= 4:
        last = int.from_bytes(tail[:4], "little") | int.from_bytes(tail[-4:], "little") << 32
    else:
        last = tail[0] | tail[len(tail) // 2] << 8 | tail[-1] << 16 if tail else 0
    return (mix(state ^ last) >> 16) % 2**32


def dense_pairs(pairs: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Targets and weights of `Pairs` as n x n arrays, at i <= j."""
    n = len(pairs.indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(pairs.indptr))
    target, weight = np.zeros((n, n)), np.zeros((n, n))
    target[rows, pairs.indices] = pairs.target
    weight[rows, pairs.indices] = pairs.weight
    return target, weight


def near_pairs(products: NDArray[Any], n_near: int) -> list[tuple[set[int], set[int], int, int]]:
    """Twin of find_near_pairs, up to ties: for each row those that must be near, those that may be, how many are."""
    out = []
    for row, own in enumerate(products):
        sharing = np.flatnonzero(own > 0)
        size = min(n_near, len(sharing))
        last = np.sort(own[sharing])[::-1][size - 1] if size else 0
        sure = {int(j) for j in sharing if own[j] > last + 1e-6}
        out.append((sure, {int(j) for j in sharing if own[j] >= last - 1e-6}, size, row))
    return out


def nearest_rows(model: Any, X: Any) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Twin of find_near_rows: the nearest clusters, and the similarities of the nearest rows there, best first."""
    n, knn = X.shape[0], model.knn
    clusters = np.zeros((n, model.n_learners), np.int32)
    similar = np.full((n, model.n_learners, knn), -np.inf)
    for i in range(n):
        x = X[i].toarray()[0].astype(np.float64)
        for learner in range(model.n_learners):
            mine = [c for c, cluster in enumerate(model.clusters) if cluster.learner == learner]
            close = [
                model.clusters[c].centre_offset + x[model.clusters[c].features] @ model.clusters[c].centre
                for c in mine
            ]
            best = mine[int(np.argmax(close))]
            clusters[i, learner] = best
            one = model.clusters[best]
            z = (np.append(x[one.features], one.bias) @ one.regressor.astype(np.float64) * one.scale)[: one.rank]
            if one.similarity == "cosine":
                z = z / max(np.linalg.norm(z), 1e-300)
            scores = np.sort(one.embeddings() @ z + one.offsets)[::-1][:knn]
            similar[i, learner, : len(scores)] = scores
    return clusters, similar.reshape(n, -1)


def embedding_vote(model: Any, clusters: Any, rows: Any, similar: Any, sharpness: float) -> NDArray[np.float64]:
    """Twin of vote_near_rows: every label's sum of votes."""
    n = len(clusters)
    rows, similar = rows.reshape(n, model.n_learners, -1), similar.reshape(n, model.n_learners, -1)
    votes = np.zeros((n, model.n_labels))
    for i in range(n):
        for learner in range(model.n_learners):
            one = model.clusters[clusters[i, learner]]
            for row, s in zip(rows[i, learner], similar[i, learner], strict=True):
                if row >= 0:
                    labels = one.labels[one.label_ptr[row] : one.label_ptr[row + 1]]
                    votes[i, labels] += np.exp(sharpness * (float(s) - float(similar[i, learner, 0])))
    return votes


def cluster_labels(V: Any, first: Any, most: int, iterations: int) -> tuple[NDArray[np.int64], list[float]]:
    """Spherical k-means from given members as first directions, clusters having `most` members at most: clusters, and
    the mean similarity of each round."""
    V = np.asarray(V.todense(), np.float64)
    n, k = len(V), len(first)
    directions, history = V[first].copy(), []
    for _ in range(iterations):
        similar = V @ directions.T
        if most < n:
            ordered = np.sort(similar, axis=1)
            room, larger = np.full(k, most), (n % k or k) if most == -(-n // k) else -1
            clusters = np.zeros(n, np.int64)
            for i in np.argsort(ordered[:, -2] - ordered[:, -1], kind="stable"):
                clusters[i] = np.argmax(np.where(room > 0, similar[i], -np.inf))
                room[clusters[i]] -= 1
                if room[clusters[i]] == 0:
                    larger -= 1
                    if larger == 0:
                        room = np.maximum(room - 1, 0)
        else:
            clusters = np.argmax(similar, axis=1)
        history.append(float(similar[np.arange(n), clusters].mean()))
        if len(history) > 1 and history[-1] - history[-2] < 1e-4:
            break
        for c in range(k):
            total = V[clusters == c].sum(axis=0)
            directions[c] = total / (np.linalg.norm(total) or 1)
    return clusters, history


def search_tree(parts: list[Any], x: NDArray[Any], beam: int) -> dict[int, float]:
    """The score of every label that a beam search of one tree reaches, for one dense row."""
    nodes = [(part, node) for part in parts for node in range(part.n_nodes)]
    level, found = {0: 0.0}, {}
    while level:
        below: dict[int, float] = {}
        for number, score in level.items():
            part, node = nodes[number]
            features, shard = part.node(node)
            W, bias = shard.to_weights()
            margins = W.toarray().astype(np.float64) @ x[features] + bias
            for child, margin in zip(part.children_of(node).tolist(), margins, strict=True):
                if np.isfinite(margin):
                    step = -((1 - margin) ** 3) if margin < 1 else 0.01 * (margin - 1)
                    (found if child >= 0 else below)[child if child >= 0 else ~child] = score + step
        level = dict(sorted(below.items(), key=lambda item: (-item[1], item[0]))[:beam])
    return found


def read_sentences(text: str) -> list[list[str]]:
    """Twin of read_words: the words of a text that is in lower case, by sentence."""
    sentences: list[list[str]] = [[]]
    length, at = 0, 0
    for match in [*re.finditer(r"\w+", text), None]:
        between = text[at : match.start() if match else len(text)]
        for i, mark in enumerate(between):
            blank = between[i + 1 : i + 2] in ("", " ", "\t", "\r", "\n") and (match is None or i + 1 < len(between))
            if (
                (mark == "." and blank and length >= 4)
                or (mark in "!?" and blank)
                or re.match(r"\n\r?\n", between[i:])
                or (match is None and between[i:] == "\n")
            ):
                sentences.append([])
        if match is not None:
            sentences[-1].append(match[0])
            length, at = len(match[0]), match.end()
            if len(sentences[-1]) == 256:
                sentences.append([])
    return [words for words in sentences if words]


def match_terms(terms: list[list[str]], sentences: list[list[str]]) -> dict[int, list[int]]:
    """Twin of Terms.match for one text and one language: by term its count, sentences where it is inside of another,
    sentences where it is exact, first and last place, fewest words between."""
    found: dict[int, list[int]] = {}
    start = 0
    for sentence in sentences:
        here = [i for i, term in enumerate(terms) if set(term) <= set(sentence)]
        for i in here:
            term = terms[i]
            inside = any(len(term) < len(terms[k]) and set(term) <= set(terms[k]) for k in here)
            runs = [
                (end - begin, begin)
                for end in range(1, len(sentence) + 1)
                for begin in range(end)
                if set(term) <= set(sentence[begin:end])
            ]
            ordered = [k for k in range(len(sentence)) if sentence[k : k + len(term)] == term]
            length, begin = (len(term), ordered[0]) if ordered else min(runs, key=lambda run: (run[0], sum(run)))
            entry = found.setdefault(i, [0, 0, 0, start + begin, 0, 1 << 30])
            entry[0] += 1
            entry[1] += inside
            entry[2] += bool(ordered)
            entry[4] = start + begin
            entry[5] = min(entry[5], max(0, length - len(term)))
        start += len(sentence)
    return found


def label_text_weights(X, Y, terms, match, word_rows, own_rows, solver):
    """LabelText's W and bias, dense, label by label; what is solved for labels and for words is PPDSparse's."""
    import umpteen

    def solve(targets):
        W, bias = umpteen.PPDSparse(**solver).fit(X, targets).model_.to_weights()
        return W.toarray().astype(float), np.asarray(bias, float)

    n_features, W, level, words = X.shape[1], [], [], {}
    of_words = np.array([(Y[:, terms[:, g] > 0] > 0).any(axis=1) for g in range(n_features)]).T.astype(float)
    taught = np.flatnonzero(of_words.sum(axis=0))
    solved, biases = solve(of_words[:, taught])
    for g in range(n_features):
        n, w, b = of_words[:, g].sum(), np.zeros(n_features), 0.0
        if n:
            w, b = solved[list(taught).index(g)], biases[list(taught).index(g)]
        trust = n / (n + word_rows) if n else 0.0
        words[g] = (trust * w + (1 - trust) * match * np.eye(n_features)[g], trust * b - (1 - trust))
    own, own_bias = solve(Y)
    for label in range(Y.shape[1]):
        z, n = terms[label].astype(float), Y[:, label].sum()
        if not n and not z.sum():
            W.append(np.zeros(n_features))
            level.append(-np.inf)
            continue
        trust = (n / (n + own_rows) if z.sum() else 1.0) if n else 0.0
        z = z / z.sum() if z.sum() else z
        composed = sum((z[g] * words[g][0] for g in np.flatnonzero(z)), np.zeros(n_features))
        W.append(trust * own[label] + (1 - trust) * composed)
        level.append(
            (trust * own_bias[label] if n else 0) + (1 - trust) * sum(z[g] * words[g][1] for g in np.flatnonzero(z))
        )
    return np.array(W), np.array(level)
