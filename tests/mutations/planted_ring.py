"""Known bugs of ring attention: where each is planted, and the test that must notice it."""

from mutations.planted import Bug

RING = "platform/ringshard/parallel/ring"
TRAIN = "platform/ringshard/train"
CUTTING = "tests/parity/test_cutting.py::test_"
ATTENTION = "tests/ring/test_attention.py::test_"
TRANSPORT = "tests/ring/test_transport.py::test_"
LAYOUTS = f"{ATTENTION}every_layout_and_transport_for_heads_in_groups"

BUGS = [
    Bug(
        "lse handed to CUDA as the ring stores it",
        f"{RING}/cuda_kernels.py",
        "F.pad(lse.contiguous(), ",
        "F.pad(lse, ",
        "tests/ring/test_kernels.py::test_gradients_are_wrong_where_lse_is_stored_by_token"
        "[64-cuda_efficient]",
    ),
    Bug(
        "one KV hop reused",
        f"{RING}/transport.py",
        "held, spare = spare, held",
        "held, spare = (spare, held) if step else (held, spare)",
        f"{LAYOUTS}[heads0-3]",
    ),
    Bug(
        "keys read before they come",
        f"{RING}/transport.py",
        "            yield by_head(held)\n            pending.wait()\n",
        "            yield by_head(held)\n",
        f"{TRANSPORT}keys_are_read_before_they_come_or_written_over_while_read[ring-1]",
    ),
    Bug(
        "keys received into those being read",
        f"{RING}/transport.py",
        "spare = torch.empty_like(held)",
        "spare = held",
        f"{TRANSPORT}keys_are_read_before_they_come_or_written_over_while_read[ring-1]",
    ),
    Bug(
        "all keys read before they come",
        f"{RING}/transport.py",
        "        pending.wait()\n"
        "        for step in range(1, self.ring.size):\n"
        "            yield by_head(everyone[(self.ring.rank - step) % self.ring.size])\n",
        "        for step in range(1, self.ring.size):\n"
        "            yield by_head(everyone[(self.ring.rank - step) % self.ring.size])\n"
        "        pending.wait()\n",
        f"{TRANSPORT}keys_are_read_before_they_come_or_written_over_while_read[allgather-1]",
    ),
    Bug(
        "gradients of keys added before they come",
        f"{RING}/transport.py",
        "            self.pending.wait()\n            share += self.arriving",
        "            share += self.arriving\n            self.pending.wait()",
        f"{TRANSPORT}gradients_are_summed_before_they_come[ring-1]",
    ),
    Bug(
        "dKV sent one hop short",
        f"{RING}/transport.py",
        "            self.pending.wait()\n        assert self.arriving is not None\n"
        "        return self.arriving",
        "            self.pending.wait()\n        assert self.arriving is not None\n"
        "        return self.pending.tensors[0] if self.pending else self.arriving",
        f"{LAYOUTS}[heads1-2]",
    ),
    Bug(
        "lse merged in bf16",
        f"{RING}/merge.py",
        "merged = torch.logaddexp(lse, block_lse)",
        "merged = torch.logaddexp(lse.bfloat16(), block_lse.bfloat16()).to(lse.dtype)",
        f"{LAYOUTS}[heads0-2]",
    ),
    Bug(
        "outputs summed in bf16",
        f"{RING}/merge.py",
        "out.lerp_(block_out.to(out.dtype), weight[..., None])",
        "out.lerp_(block_out.to(out.dtype), weight[..., None]).copy_(out.bfloat16())",
        f"{ATTENTION}the_error_does_not_grow_with_the_number_of_ranks",
    ),
    Bug(
        "bounds off by one",
        f"{RING}/documents.py",
        "np.flatnonzero(is_start) + 1",
        "np.flatnonzero(is_start)",
        "tests/ring/test_layout.py::test_bounds_from_lengths_positions_and_numbers_agree",
    ),
    Bug(
        "a document reaches one query too far",
        f"{RING}/plan.py",
        "queries = np.minimum(bounds[document + 1], first + size) - first",
        "queries = np.minimum(bounds[document + 1] + 1, first + size) - first",
        "tests/ring/test_plan.py::test_segments_are_the_brute_force_mask",
    ),
    Bug(
        "a document starts one key too late",
        f"{RING}/plan.py",
        "np.where(has_start, start % size, 0)",
        "np.where(has_start, (start + 1) % size, 0)",
        "tests/ring/test_plan.py::test_segments_are_the_brute_force_mask",
    ),
    Bug(
        "plan of the wrong rank",
        f"{RING}/share.py",
        "plan = build_plan(layout, cut.rows, ring.rank).to_tensor()",
        "plan = build_plan(layout, cut.rows, (ring.rank + 1) % ring.size).to_tensor()",
        "tests/ring/test_models.py::test_a_type_is_exact_or_refused[llama]",
    ),
    Bug(
        "lse of the backward pass is not the forward's",
        f"{RING}/attention.py",
        "    ctx.save_for_backward(q, k, v, *output, plan)",
        "    ctx.save_for_backward(q, k, v, output[0], output[1] + 1e-3, plan)",
        f"{LAYOUTS}[heads0-2]",
    ),
    Bug(
        "longest position is the rank's own",
        f"{RING}/transformers.py",
        "(*positions.shape[:-1], 1), length - 1)",
        "(*positions.shape[:-1], 1), 0)",
        "tests/ring/test_models.py::test_every_kind_of_rotary_embedding_is_exact[dynamic]",
    ),
    Bug(
        "two of three dimensions of positions are the first",
        f"{RING}/share.py",
        "return Share(own, state, layout, imbalance(cut.work))",
        "return Share({n: t[:1].expand_as(t) if t.dim() == 3 else t for n, t in own.items()}, "
        "state, layout, imbalance(cut.work))",
        "tests/ring/test_positions.py::test_positions_in_three_dimensions_are_cut_wrongly[2]",
    ),
    Bug(
        "attention recomputed",
        f"{RING}/recompute.py",
        "return CheckpointPolicy.MUST_SAVE",
        "return CheckpointPolicy.PREFER_RECOMPUTE",
        "tests/ring/test_transformers.py"
        "::test_gradients_stay_and_attention_is_called[attention-kept]",
    ),
    Bug(
        "labels shifted after the cut",
        f"{TRAIN}/pieces.py",
        'own["targets"],',
        'torch.cat([own["input_ids"][:, 1:], own["targets"][:, -1:]], 1)'
        '.masked_fill(own["targets"] == IGNORED, IGNORED),',
        f"{CUTTING}cutting_rows_changes_the_curve[ragged-cp-2]",
    ),
    Bug(
        "positions not restarted",
        f"{TRAIN}/pieces.py",
        "np.stack([positions_of(bounds) for bounds",
        "np.stack([np.arange(bounds[-1]) for bounds",
        f"{CUTTING}packed_documents_train_unlike_each_by_itself[gpt2]",
    ),
    Bug(
        "documents attend to each other",
        f"{TRAIN}/pieces.py",
        "share(self.ring, rows.bounds, tensors, cutting)",
        "share(self.ring, [b[[0, -1]] for b in rows.bounds], tensors, cutting)",
        f"{CUTTING}packed_documents_train_unlike_each_by_itself[llama]",
    ),
    Bug(
        "counts doubled over cp",
        f"{TRAIN}/agreement.py",
        "if mesh.ring.rank == 0:",
        "if True:",
        f"{CUTTING}cutting_rows_changes_the_curve[ragged-cp-2]",
    ),
    Bug(
        "padding counted by each rank of a ring",
        f"{TRAIN}/agreement.py",
        "self._numbers[1] = batch.padding",
        "self._numbers[1] = batch.padding * mesh.ring.size",
        f"{CUTTING}cutting_packed_rows_changes_the_curve[cp-2]",
    ),
    Bug(
        "ranks of a ring read other tokens",
        f"{TRAIN}/pieces.py",
        '"input_ids": (rows.input_ids, 0),',
        '"input_ids": (rows.input_ids.roll(self.ring.rank, 1), 0),',
        f"{CUTTING}cutting_rows_changes_the_curve[ragged-cp-2]",
    ),
    Bug(
        "the budget's surplus is cut already",
        f"{TRAIN}/agreement.py",
        "return replace(batch, targets=targets, pieces=())",
        "return replace(batch, targets=targets)",
        "tests/parity/test_topology.py"
        "::test_a_token_budget_learns_the_surplus_of_its_last_step[fsdp-2-cp-2]",
    ),
    Bug(
        "a rank is thought to hold whole sequences",
        f"{TRAIN}/estimate.py",
        "job.data.seq_len / mesh.ring.size",
        "job.data.seq_len",
        "tests/train/test_estimate.py::test_a_step_takes_other_memory_than_estimated[none-2]",
    ),
    Bug(
        "cuDNN judges by strides as they come",
        f"{RING}/cuda_kernels.py",
        "[t.contiguous() for t in tensors]",
        "list(tensors)",
        "tests/ring/test_kernels.py::test_cudnn_is_given_tensors_of_different_strides",
    ),
    Bug(
        "a value's own width is lost",
        f"{RING}/attention.py",
        "return out[..., :width] if width < wanted else out",
        "return out[..., wanted - width :] if width < wanted else out",
        f"{ATTENTION}values_of_another_width_than_keys[2]",
    ),
]
