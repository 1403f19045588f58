"""Ring context parallelism: a sequence over cp ranks, attention as on one, packed documents too.

What a trainer does, per job:

    ring = open_ring([[0, 1], [2, 3], …], device)   # or alone(): one rank, the same code
    register()                                       # before the model: attn_implementation="ring"
    refusals(describe_built(model), probe(model))    # on the meta device; sentences, or none
    fix_longest_position(model, seq_len)             # dynamic and longrope frequencies

per micro-batch, on the host, the same on all ranks of a ring:

    targets shifted, positions restarted per document (positions_of): before anything is cut
    rows = [bounds_of_lengths(…), …]                 # documents of each row; or of positions, ids
    part = share(ring, rows, {"input_ids": (tokens, 0), "targets": (targets, -100),
                              "position_ids": (positions, 0)}, Cutting(layout, transport, …))
    model(**part.tensors, ring=part.state)           # no attention mask, no cache

and around it:

    data rank = rank on the other axes: ranks of a ring read the same rows (Cutting.check compares)
    loss = sum over the rank's own targets / valid targets of the whole global batch, which are
        counted on whole rows over the data ranks, or on cut rows over all ranks; never mixed
    gradients are summed over dp_shard × cp; logged sums over dp × cp
    with watched(ring, layers): the first forward pass; each layer must have attended
    checkpoint(block, context_fn=keep_attention, use_reentrant=False): attention is not recomputed
    part.layout.unshard(parts): per-token results of all ranks in order, cut off at the true length
    part.imbalance: to be logged

cp has no state: a checkpoint knows nothing of it. Modules: documents → layout → plan → (kernels,
spans, merge → blocks) → (group, waiting, agreement → transport) → attention → share, transformers.
"""
