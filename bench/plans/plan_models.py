"""The models: MLP, Llama and a mixture of experts, forward and hand-written backward.

A block emits its forward operators and returns (output, backward): backward(dy) emits the
backward operators, hands weight gradients to the builder and returns dx. Shapes: activations
[batch, tokens, hidden], tokens cut over cp, and over tp too between the tensor-parallel regions
under sequence parallelism. The logical model is the same code in a world of one rank.
"""

import math


def linear(b, x, name, shape, cut, short):
    """y = x W^T; W [out, in] cut over tp along `cut` (0: columns, 1: rows of W^T)."""
    fqn = b.fqn
    b.parameter(name, shape, cut)
    y = b.linear(x, b.weight(name), short)

    def backward(dy):
        b.at(fqn)
        dx = b.matmul(dy, b.weight(name), short + ".dx")
        b.gradient(name, b.weight_gradient(dy, x, short + ".dw"))
        return dx

    return y, backward


def add_bias(b, x, name, size, cut, short):
    """Bias over the last dim; not cut behind a row-parallel linear, where tokens may be."""
    fqn = b.fqn
    b.parameter(name, [size], cut, spread=cut is None and b.config.sp)
    y = b.pair("add", x, b.weight(name), short)

    def backward(dy):
        b.at(fqn)
        dims = range(len(dy.shape) - 1)
        b.gradient(name, b.reduce("sum", dy, dims, short + ".db"))
        return dy

    return y, backward


def rms_norm(b, x, name, eps=1e-5):
    fqn, size, last = b.fqn, x.shape[-1], [len(x.shape) - 1]
    b.parameter(name, [size], spread=b.config.sp)
    square = b.same("pow", x, "square", {"exponent": 2.0})
    mean = b.reduce("mean", square, last, "mean", True)
    inverse = b.same("rsqrt", b.add_scalar(mean, eps, "eps"), "rsqrt")
    normal = b.pair("mul", x, inverse, "normal")
    y = b.pair("mul", normal, b.weight(name), "weighted")

    def backward(dy):
        b.at(fqn)
        product = b.pair("mul", dy, normal, "dw.mul")
        b.gradient(name, b.reduce("sum", product, range(len(x.shape) - 1), "dw"))
        dn = b.pair("mul", dy, b.weight(name), "dn")
        share = b.reduce("mean", b.pair("mul", dn, normal, "share.mul"), last,
                         "share", True)  # fmt: skip
        back = b.pair("mul", normal, share, "back")
        return b.pair("mul", b.pair("sub", dn, back, "sub"), inverse, "dx")

    return y, backward


def silu(b, x, short):
    y = b.same("silu", x, short)

    def backward(dy):
        sigmoid = b.same("sigmoid", x, short + ".sigmoid")
        rest = b.add_scalar(b.same("neg", sigmoid, short + ".neg"), 1, short + ".rest")
        slope = b.add_scalar(b.pair("mul", x, rest, short + ".xrest"), 1, short + ".one")
        slope = b.pair("mul", sigmoid, slope, short + ".slope")
        return b.pair("mul", dy, slope, short + ".dx")

    return y, backward


# ---- attention -------------------------------------------------------------------------------


def rotate(b, x, cos, sin, short):
    """RoPE: x cos + (-x2, x1) sin over the halves of the last dim."""
    dim, half = len(x.shape) - 1, x.shape[-1] // 2
    low, high = b.slice(x, dim, 0, half, short + ".low"), b.slice(x, dim, half, 2 * half,
                                                                   short + ".high")  # fmt: skip
    turned = b.cat([b.same("neg", high, short + ".neg"), low], dim, short + ".turn")
    y = b.pair("add", b.pair("mul", x, cos, short + ".cos"),
               b.pair("mul", turned, sin, short + ".sin"), short)  # fmt: skip

    def backward(dy):
        side = b.pair("mul", dy, sin, short + ".dsin")
        low = b.slice(side, dim, 0, half, short + ".dlow")
        high = b.slice(side, dim, half, 2 * half, short + ".dhigh")
        turned = b.cat([high, b.same("neg", low, short + ".dneg")], dim, short + ".dturn")
        return b.pair("add", b.pair("mul", dy, cos, short + ".dcos"), turned, short + ".dx")

    return y, backward


def split_heads(b, x, heads, short):
    batch, tokens, width = x.shape
    size = width // heads
    apart = b.view(x, [batch, tokens, heads, size], short + ".heads")
    y = b.permute(apart, [0, 2, 1, 3], short + ".bhsd")

    def backward(dy):
        together = b.permute(dy, [0, 2, 1, 3], short + ".dbshd")
        return b.view(together, x.shape, short + ".dheads")

    return y, backward


def repeat_heads(b, x, times, short):
    """Grouped-query attention: each key/value head serves `times` query heads."""
    batch, heads, tokens, size = x.shape
    if times == 1:
        return x, lambda dy: dy
    apart = b.view(x, [batch, heads, 1, tokens, size], short + ".apart")
    wide = [batch, heads, times, tokens, size]
    wider = b.op("expand", [apart], wide, short + ".expand", {"shape": wide})
    y = b.view(wider, [batch, heads * times, tokens, size], short + ".repeat")

    def backward(dy):
        return b.reduce("sum", b.view(dy, wide, short + ".dapart"), [2], short + ".dsum")

    return y, backward


def gather_context(b, x, short):
    """Context parallelism: keys and values of all tokens."""
    size = b.config.cp
    if size == 1:
        return x, lambda dy: dy
    y = b.all_gather(x, "cp", 2, size, short + ".gather")
    return y, lambda dy: b.reduce_scatter(dy, "cp", 2, size, short + ".scatter")


def causal_mask(b, rows, columns):
    """(masked, kept): [rows, columns] with this rank's first row."""
    first = b.cp_rank * rows
    row = b.op("arange", [], [rows], "mask.rows",
               {"start": first, "end": first + rows, "step": 1}, dtype="int64")  # fmt: skip
    column = b.op("arange", [], [columns], "mask.columns",
                  {"start": 0, "end": columns, "step": 1}, dtype="int64")  # fmt: skip
    row, column = b.view(row, [rows, 1], "mask.row"), b.view(column, [1, columns], "mask.column")
    masked = b.pair("lt", row, column, "mask.masked", dtype="bool")
    kept = b.same("cast", b.pair("ge", row, column, "mask.kept", dtype="bool"), "mask.cast",
                  dtype="float32")  # fmt: skip
    return masked, kept


def attend(b, q, k, v):
    """softmax(q k^T / sqrt(d), causal) v, all [batch, heads, tokens, size]."""
    masked, kept = causal_mask(b, q.shape[2], k.shape[2])
    factor = 1 / math.sqrt(q.shape[3])
    turned = b.permute(k, [0, 1, 3, 2], "kt")
    scores = b.scale(b.matmul(q, turned, "scores"), factor, "scores.scale")
    hidden = b.op("masked_fill", [scores, masked], scores.shape, "scores.mask", {"value": -1e9})
    p = b.same("softmax", hidden, "softmax", {"dim": 3})
    y = b.matmul(p, v, "values")

    def backward(dy):
        dv = b.matmul(b.permute(p, [0, 1, 3, 2], "pt"), dy, "values.dv")
        dp = b.matmul(dy, b.permute(v, [0, 1, 3, 2], "vt"), "values.dp")
        share = b.reduce("sum", b.pair("mul", dp, p, "softmax.mul"), [3], "softmax.share", True)
        ds = b.pair("mul", p, b.pair("sub", dp, share, "softmax.sub"), "softmax.dx")
        ds = b.scale(b.pair("mul", ds, kept, "scores.dmask"), factor, "scores.dscale")
        dq = b.matmul(ds, k, "scores.dq")
        dk = b.matmul(b.permute(ds, [0, 1, 3, 2], "scores.dt"), q, "scores.dk")
        return dq, dk, dv

    return y, backward


def attention(b, x, name):
    config, fqn, hidden, d = b.config, b.fqn, x.shape[2], b.config.width
    heads, kv = config.heads // config.tp, config.kv_heads // config.tp
    inside = b.enter(x, "qkv")
    tokens, first = inside.shape[1], b.cp_rank * inside.shape[1]
    cos = b.input("rope.cos", [tokens, d], [(first, 0, 0), (0, 0, 0)])
    sin = b.input("rope.sin", [tokens, d], [(first, 0, 0), (0, 0, 0)])
    q, q_back = linear(b, inside, name + ".wq.weight", [config.heads * d, hidden], 0, "wq")
    k, k_back = linear(b, inside, name + ".wk.weight", [config.kv_heads * d, hidden], 0, "wk")
    v, v_back = linear(b, inside, name + ".wv.weight", [config.kv_heads * d, hidden], 0, "wv")
    q, q_heads = split_heads(b, q, heads, "q")
    k, k_heads = split_heads(b, k, kv, "k")
    v, v_heads = split_heads(b, v, kv, "v")
    q, q_turn = rotate(b, q, cos, sin, "rope.q")
    k, k_turn = rotate(b, k, cos, sin, "rope.k")
    k, k_context = gather_context(b, k, "k")
    v, v_context = gather_context(b, v, "v")
    k, k_repeat = repeat_heads(b, k, config.heads // config.kv_heads, "k")
    v, v_repeat = repeat_heads(b, v, config.heads // config.kv_heads, "v")
    o, attend_back = attend(b, q, k, v)
    together = b.permute(o, [0, 2, 1, 3], "o.bshd")
    flat = b.view(together, [x.shape[0], tokens, heads * d], "o.flat")
    y, o_back = linear(b, flat, name + ".wo.weight", [hidden, config.heads * d], 1, "wo")
    y = b.leave(y, "wo")

    def backward(dy):
        b.at(fqn)
        do = o_back(b.leave_backward(dy, "wo"))
        do = b.view(do, together.shape, "o.dflat")
        dq, dk, dv = attend_back(b.permute(do, [0, 2, 1, 3], "o.dbhsd"))
        dk, dv = k_context(k_repeat(dk)), v_context(v_repeat(dv))
        dq, dk, dv = q_heads(q_turn(dq)), k_heads(k_turn(dk)), v_heads(dv)
        dx = b.pair("add", b.pair("add", q_back(dq), k_back(dk), "qk.dx"), v_back(dv), "qkv.dx")
        return b.enter_backward(dx, "qkv")

    return y, backward


# ---- feed-forward -----------------------------------------------------------------------------


def swiglu(b, x, name, width):
    fqn, hidden = b.fqn, x.shape[-1]
    inside = b.enter(x, "up")
    gate, gate_back = linear(b, inside, name + ".w1.weight", [width, hidden], 0, "w1")
    up, up_back = linear(b, inside, name + ".w3.weight", [width, hidden], 0, "w3")
    active, active_back = silu(b, gate, "silu")
    product = b.pair("mul", active, up, "product")
    y, down_back = linear(b, product, name + ".w2.weight", [hidden, width], 1, "w2")
    y = b.leave(y, "w2")

    def backward(dy):
        b.at(fqn)
        dh = down_back(b.leave_backward(dy, "w2"))
        dgate = active_back(b.pair("mul", dh, up, "product.dactive"))
        dup = b.pair("mul", dh, active, "product.dup")
        dx = b.pair("add", gate_back(dgate), up_back(dup), "up.dx")
        return b.enter_backward(dx, "up")

    return y, backward


def route(b, x, name):
    """Router: gates [batch, tokens, experts], zero but for the top k, the same on all tp ranks."""
    fqn, experts, k = b.fqn, b.config.experts, b.config.top_k
    logits, logits_back = linear(b, x, name + ".router.weight", [experts, x.shape[-1]], None,
                                 "router")  # fmt: skip
    p = b.same("softmax", logits, "router.softmax", {"dim": 2})
    gates = b.op("top_k_gates", [p], p.shape, "router.gates", {"k": k},
                 sig="p[... e^] -> [... e]")  # fmt: skip

    def backward(dgates):
        b.at(fqn)
        chosen = b.op("top_k_mask", [p], p.shape, "router.chosen", {"k": k},
                      sig="p[... e^] -> [... e]")  # fmt: skip
        dp = b.pair("mul", dgates, chosen, "router.dp")
        share = b.reduce("sum", b.pair("mul", dp, p, "router.dp.mul"), [2], "router.share", True)
        return logits_back(b.pair("mul", p, b.pair("sub", dp, share, "router.sub"),
                                  "router.dlogits"))  # fmt: skip

    return gates, backward


def expert_linear(b, x, name, shape, short):
    """y[e t n] = sum_k x[(e) t k] w[e k n]; experts cut over tp."""
    b.parameter(name, shape, 0)
    y = b.matmul(x, b.weight(name), short)

    def backward(dy):
        turned = b.permute(b.weight(name), [0, 2, 1], short + ".wt")
        dx = b.matmul(dy, turned, short + ".dx")
        seen = b.permute(x, [0, 2, 1], short + ".xt")
        b.gradient(name, b.matmul(seen, dy, short + ".dw"))
        return dx

    return y, backward


def moe(b, x, name, width):
    """Every expert computes every token; the gates choose. Experts over tp (expert parallelism)."""
    config, fqn = b.config, b.fqn
    local, first = config.experts // config.tp, b.tp_rank * config.experts // config.tp
    inside = b.enter(x, "moe")
    batch, tokens, hidden = inside.shape
    gates, gates_back = route(b, inside, name)
    own = gates
    if config.tp > 1:
        own = b.slice(gates, 2, first, first + local, "gates.own")
    weights = b.permute(own, [2, 0, 1], "gates.ebs")
    weights = b.view(weights, [local, batch * tokens, 1], "gates.et1")
    flat = b.view(inside, [1, batch * tokens, hidden], "moe.flat")
    gate, gate_back = expert_linear(b, flat, name + ".w1", [config.experts, hidden, width], "e1")
    up, up_back = expert_linear(b, flat, name + ".w3", [config.experts, hidden, width], "e3")
    active, active_back = silu(b, gate, "e.silu")
    product = b.pair("mul", active, up, "e.product")
    each, down_back = expert_linear(b, product, name + ".w2", [config.experts, width, hidden], "e2")
    mixed = b.reduce("sum", b.pair("mul", each, weights, "e.weighted"), [0], "e.mix")
    y = b.leave(b.view(mixed, inside.shape, "moe.out"), "moe")

    def backward(dy):
        b.at(fqn)
        dy = b.leave_backward(dy, "moe")
        df = b.view(dy, [1, batch * tokens, hidden], "moe.dflat")
        dweights = b.reduce("sum", b.pair("mul", each, df, "e.dgate.mul"), [2], "e.dgate")
        dweights = b.view(dweights, [local, batch, tokens], "gates.debs")
        dgates = b.permute(dweights, [1, 2, 0], "gates.dbse")
        if config.tp > 1:
            dgates = b.all_gather(dgates, "tp", 2, config.tp, "gates.gather")
        dh = down_back(b.pair("mul", weights, df, "e.dmix"))
        dgate = active_back(b.pair("mul", dh, up, "e.dactive"))
        dup = b.pair("mul", dh, active, "e.dup")
        dx = b.pair("add", gate_back(dgate), up_back(dup), "e.dx")
        dx = b.view(b.reduce("sum", dx, [0], "e.dx.sum"), inside.shape, "moe.dx")
        dx = b.leave(dx, "moe.dx")
        return dx, gates_back(dgates)

    def join(dy):
        dx, droute = backward(dy)
        if config.sp and config.tp > 1:
            size = tokens // config.tp
            droute = b.slice(droute, 1, b.tp_rank * size, (b.tp_rank + 1) * size, "router.own")
        return b.pair("add", dx, droute, "moe.dx.sum")

    return y, join


# ---- ends ---------------------------------------------------------------------------------------


def one_hot(b, ids, rows, first, short):
    """[batch, tokens, rows] of floats: is the id first + row?"""
    names = b.op("arange", [], [rows], short + ".names",
                 {"start": first, "end": first + rows, "step": 1}, dtype="int64")  # fmt: skip
    wide = b.view(ids, [*ids.shape, 1], short + ".ids")
    hot = b.pair("eq", wide, names, short + ".eq", dtype="bool")
    return b.same("cast", hot, short, dtype="float32")


def token_input(b, name, spread):
    """Ids of this rank's tokens; under sequence parallelism of its share of them if `spread`."""
    config = b.config
    tokens = config.seq // config.cp
    first = b.cp_rank * tokens
    if spread and config.sp:
        tokens //= config.tp
        first += b.tp_rank * tokens
    return b.input(name, [config.batch, tokens], [b.batch_start(), (first, 0, 0)], "int64",
                   each=config.nm > 1)  # fmt: skip


def embed(b):
    config, name = b.config, "tok_embeddings.weight"
    shape, fqn = [config.vocab, config.hidden], "tok_embeddings"
    b.at(fqn)
    if config.vocab_embedding:
        ids = token_input(b, "tokens", False)
        b.parameter(name, shape, 0)
        rows = b.weight(name).shape[0]
        hot = one_hot(b, ids, rows, b.tp_rank * rows, "embed.hot")
        y = b.leave(b.matmul(hot, b.weight(name), "embed"), "embed")

        def backward(dy):
            b.at(fqn)
            b.gradient(name, b.weight_gradient(hot, b.leave_backward(dy, "embed"), "embed.dw"))

        return y, backward
    ids = token_input(b, "tokens", True)
    b.parameter(name, shape, spread=config.sp)
    y = b.op("embedding", [b.weight(name), ids], [*ids.shape, config.hidden], "embed")

    def backward(dy):
        b.at(fqn)
        b.gradient(name, b.op("embedding_backward", [dy, ids], shape, "embed.dw",
                              {"rows": config.vocab}))  # fmt: skip

    return y, backward


def cross_entropy(b, logits):
    """Mean over tokens of log(sum exp) - logit of the target; logits' last dim cut over tp."""
    config, fqn = b.config, b.fqn
    wide, rows = config.tp > 1, logits.shape[2]
    targets = token_input(b, "targets", False)
    top = b.reduce("amax", logits, [2], "max", True)
    if wide:
        top = b.all_reduce(top, "tp", "max.reduce", "max")
    shifted = b.pair("sub", logits, top, "shift")
    exp = b.same("exp", shifted, "exp")
    total = b.reduce("sum", exp, [2], "sum", True)
    if wide:
        total = b.all_reduce(total, "tp", "sum.reduce")
    hot = one_hot(b, targets, rows, b.tp_rank * rows, "hot")
    right = b.reduce("sum", b.pair("mul", hot, shifted, "pick"), [2], "right", True)
    if wide:
        right = b.all_reduce(right, "tp", "right.reduce")
    each = b.pair("sub", b.same("log", total, "log"), right, "tokens")
    loss = b.reduce("mean", each, [0, 1, 2], "mean")
    if config.cp > 1:
        loss = b.all_reduce(loss, "cp", "cp", "avg")
    from_replicas = "mean" if config.dp > 1 else "equal"
    from_batches = "mean" if config.nm > 1 else "equal"
    b.output("loss", "loss", loss, (from_replicas, from_batches))

    def backward():
        b.at(fqn)
        p = b.pair("div", exp, total, "p")
        count = targets.shape[0] * targets.shape[1] * config.nm
        return b.scale(b.pair("sub", p, hot, "dlogits"), 1 / count, "dscale")

    return loss, backward


def head(b, x):
    """Final norm, vocabulary projection (columns over tp), loss; backward() starts from 1."""
    config = b.config
    b.at("norm")
    y, norm_back = rms_norm(b, x, "norm.weight")
    b.at("output")
    name = "tok_embeddings.weight" if config.tied else "output.weight"
    inside = b.enter(y, "logits")
    logits, logits_back = linear(b, inside, name, [config.vocab, config.hidden], 0, "logits")
    b.at("loss")
    _, loss_back = cross_entropy(b, logits)

    def backward():
        dlogits = loss_back()
        dx = logits_back(dlogits)
        return norm_back(b.enter_backward(dx, "logits"))

    return backward


def block(b, x, index):
    """One transformer layer."""
    config, name = b.config, f"layers.{index}"
    b.at(name + ".attention_norm")
    y, norm1_back = rms_norm(b, x, name + ".attention_norm.weight")
    b.at(name + ".attention")
    y, attention_back = attention(b, y, name + ".attention")
    b.at(name)
    middle = b.pair("add", x, y, "attention.residual")
    b.at(name + ".ffn_norm")
    y, norm2_back = rms_norm(b, middle, name + ".ffn_norm.weight")
    routed = config.model == "moe" and index >= config.dense_layers
    b.at(name + (".moe" if routed else ".feed_forward"))
    feed = moe if routed else swiglu
    y, feed_back = feed(b, y, b.fqn, config.ffn)
    b.at(name)
    out = b.pair("add", middle, y, "ffn.residual")

    def backward(dy):
        dm = norm2_back(feed_back(dy))
        b.at(name)
        dm = b.pair("add", dm, dy, "ffn.residual.dx")
        dx = norm1_back(attention_back(dm))
        b.at(name)
        return b.pair("add", dx, dm, "attention.residual.dx")

    return out, backward


def mlp_block(b, x, index):
    """x + W2 tanh(W1 x + b1) + b2."""
    config, name = b.config, f"layers.{index}"
    b.at(name)
    inside = b.enter(x, "in")
    h, up_back = linear(b, inside, name + ".w1.weight", [config.ffn, config.hidden], 0, "w1")
    h, bias1_back = add_bias(b, h, name + ".w1.bias", config.ffn, 0, "b1")
    t = b.same("tanh", h, "tanh")
    y, down_back = linear(b, t, name + ".w2.weight", [config.hidden, config.ffn], 1, "w2")
    y = b.leave(y, "w2")
    y, bias2_back = add_bias(b, y, name + ".w2.bias", config.hidden, None, "b2")
    out = b.pair("add", x, y, "residual")

    def backward(dy):
        b.at(name)
        dt = down_back(b.leave_backward(bias2_back(dy), "w2"))
        square = b.pair("mul", t, t, "tanh.square")
        slope = b.add_scalar(b.same("neg", square, "tanh.neg"), 1, "tanh.slope")
        dx = up_back(bias1_back(b.pair("mul", dt, slope, "tanh.dx")))
        b.at(name)
        return b.pair("add", b.enter_backward(dx, "in"), dy, "residual.dx")

    return out, backward


def mlp_loss(b, x):
    """Mean square distance from the target."""
    config = b.config
    b.at("loss")
    target = b.activation_input("target")
    delta = b.pair("sub", x, target, "delta")
    each = b.same("pow", delta, "square", {"exponent": 2.0})
    loss = b.reduce("mean", each, [0, 1, 2], "mean")
    if config.sp and config.tp > 1:
        loss = b.all_reduce(loss, "tp", "tp", "avg")
    if config.cp > 1:
        loss = b.all_reduce(loss, "cp", "cp", "avg")
    b.output("loss", "loss", loss, ("mean" if config.dp > 1 else "equal",
                                    "mean" if config.nm > 1 else "equal"))  # fmt: skip

    def backward():
        b.at("loss")
        count = config.batch * config.seq // config.cp * config.hidden * config.nm
        return b.scale(delta, 2 / count, "dx")

    return backward


def build_model(b):
    """Forward and backward of the layers of this role's pipeline stage."""
    config, last = b.config, b.stage == b.config.pp - 1
    b.begin("fw", "fw")
    backs, embed_back = [], None
    if b.stage:
        b.at("pipeline")
        x = b.receive(b.activation_shape(), b.stage - 1, 0, f"recv.fw.{b.stage}")
    elif config.model == "mlp":
        b.at("input")
        x = b.activation_input("x")
        x, embed_back = add_bias(b, x, "input.bias", config.hidden, None, "in")
    else:
        x, embed_back = embed(b)
    for index in config.stage_layers(b.stage):
        x, back = (mlp_block if config.model == "mlp" else block)(b, x, index)
        backs.append(back)
    if last:
        loss_back = (mlp_loss if config.model == "mlp" else head)(b, x)
    else:
        b.at("pipeline")
        b.send(x, b.stage + 1, 0, f"send.fw.{b.stage}")
    b.begin("bw", "bw")
    if last:
        dx = loss_back()
    else:
        b.at("pipeline")
        dx = b.receive(b.activation_shape(), b.stage + 1, 1, f"recv.bw.{b.stage}")
    for back in reversed(backs):
        dx = back(dx)
    if b.stage:
        b.at("pipeline")
        b.send(dx, b.stage - 1, 1, f"send.bw.{b.stage}")
    elif embed_back:
        embed_back(dx)
