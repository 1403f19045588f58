"""Known bugs of optimizers: where each is planted, and the test that must notice it."""

from mutations.planted import Bug

OPTIM = "platform/ringshard/optim"
TESTS = "tests/optim"

BUGS = [
    Bug(
        "norms of spheres summed over replicas",
        f"{OPTIM}/hyperball.py",
        "dist.all_reduce(sums, group=self.group)",
        "dist.all_reduce(sums)",
        f"{TESTS}/test_sharded.py::test_replicas_count_in_the_norm_of_a_sphere",
    ),
    Bug(
        "momentum overwritten by its normalisation",
        f"{OPTIM}/newton_schulz.py",
        "x = x / norms.clamp(min=EPS)[:, None, None]",
        "x = x.div_(norms.clamp(min=EPS)[:, None, None])",
        f"{TESTS}/test_newton_schulz.py::test_what_is_orthogonalized_is_overwritten",
    ),
    Bug(
        "an owner's rows swapped",
        f"{OPTIM}/exchange.py",
        "torch.cat([own[place] for own in pieces])",
        "torch.cat([own[place] for own in reversed(pieces)])",
        f"{TESTS}/test_sharded.py::test_cut_over_ranks_a_step_is_not_the_same_bits[muon-2-2]",
    ),
    Bug(
        "the next bucket is sent when the present one is computed",
        f"{OPTIM}/exchange.py",
        """\
            if number + 1 < len(self.plan.buckets):
                arriving = self._to_owners(self.plan.buckets[number + 1], parts, dtype)
            computed = compute(self.plan.of(bucket, self.rank), wholes)
""",
        """\
            computed = compute(self.plan.of(bucket, self.rank), wholes)
            if number + 1 < len(self.plan.buckets):
                arriving = self._to_owners(self.plan.buckets[number + 1], parts, dtype)
""",
        f"{TESTS}/test_sharded.py::test_a_bucket_is_computed_while_no_other_is_on_its_way",
    ),
    Bug(
        "MONA keeps the accelerated gradient",
        f"{OPTIM}/mona.py",
        "return gradient + share * difference, before + (1 - beta) * difference",
        "return gradient + share * difference, before + (1 - beta) * (1 + share) * difference",
        f"{TESTS}/test_mona.py::test_the_slow_average_is_not_of_the_raw_gradients",
    ),
    Bug(
        "state cast on load",
        f"{OPTIM}/ruled.py",
        "local(value).copy_(local(other))",
        "local(value).copy_(local(other).to(slot.parameter.dtype))",
        f"{TESTS}/test_state.py::test_torchs_own_state_dict_makes_a_step_or_changes_formats[lion8bit]",
    ),
    Bug(
        "random rounding starts anew in each shard",
        f"{OPTIM}/slot.py",
        "first = first_row(self.parameter) * math.prod(self.parameter.shape[1:])",
        "first = 0",
        f"{TESTS}/test_sharded.py::test_bf16_weights_are_rounded_by_where_they_lie[lion8bit]",
    ),
    Bug(
        "a fused matrix is orthogonalized as one",
        f"{OPTIM}/layout.py",
        "Layout(tuple(w.shape), w.transposed, tuple(w.sizes))",
        "Layout(tuple(w.shape), w.transposed)",
        f"{TESTS}/test_roles.py::test_a_fused_matrix_is_not_updated_as_its_parts_are",
    ),
    Bug(
        "a skipped step changes the momentum",
        f"{OPTIM}/slot.py",
        "held.copy_(torch.where(ok, value.to(held.dtype), held))",
        "held.copy_(value.to(held.dtype))",
        f"{TESTS}/test_skipped.py::test_a_gradient_that_is_not_finite_changes_anything[muon-1]",
    ),
    Bug(
        "a skipped step counts",
        f"{OPTIM}/slot.py",
        'self.state["step"].add_(ok)',
        'self.state["step"].add_(1)',
        f"{TESTS}/test_skipped.py"
        "::test_a_gradient_that_is_not_finite_changes_anything[adamw_hyperball-2]",
    ),
    Bug(
        "a released gradient stays",
        f"{OPTIM}/release.py",
        "        slot.parameter.grad = None\n",
        "",
        f"{TESTS}/test_release.py::test_a_released_step_is_another_one[adamw]",
    ),
    Bug(
        "the embedding gets Muon",
        f"{OPTIM}/roles.py",
        "if isinstance(module, nn.Embedding):",
        "if False:",
        f"{TESTS}/test_roles.py"
        "::test_a_parameter_is_in_no_group_or_in_two_or_an_embedding_gets_muon[llama]",
    ),
    Bug(
        "averages of the noise begin anew after a resume",
        "platform/ringshard/train/hooks.py",
        "replace(trainer.state, noise=trainer.noise.averages.tolist())",
        "replace(trainer.state)",
        "tests/train/test_noise.py::test_after_a_resume_the_critical_batch_is_another_one[1-end0]",
    ),
]
