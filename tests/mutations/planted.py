"""Known bugs: where each is planted, and the test that must notice it."""

from dataclasses import dataclass

TRAIN = "platform/ringshard/train"
PARALLEL = "platform/ringshard/parallel"
DATA = "platform/ringshard/data"
MODEL = "platform/ringshard/model"
TOPOLOGY = "tests/parity/test_topology.py::test_another_topology_changes_the_curve"
RESUME = "tests/train/test_resume.py::test_a_run_"


@dataclass(frozen=True)
class Bug:
    """`right` in `file` becomes `wrong`; then `test` must fail."""

    name: str
    file: str
    right: str
    wrong: str
    test: str


BUGS = [
    Bug(
        "loss divided by the local token count",
        f"{TRAIN}/trainer.py",
        "max(targets, 1)  #",
        "max(int(batch.counts.sum()), 1)  #",
        f"{TOPOLOGY}[fsdp-2]",
    ),
    Bug(
        "mean of micro-batch means",
        f"{TRAIN}/step.py",
        "(loss_sum / targets).backward()",
        "(loss_sum / (piece.targets >= 0).sum().clamp(min=1) / len(pieces)).backward()",
        f"{TOPOLOGY}[accumulation-4]",
    ),
    Bug(
        "logged loss is one micro-batch's",
        f"{TRAIN}/step.py",
        "loss += loss_sum.detach() / targets",
        "loss = loss_sum.detach() / targets",
        f"{TOPOLOGY}[accumulation-4]",
    ),
    Bug(
        "logged loss is one rank's",
        f"{TRAIN}/recorder.py",
        "dist.all_reduce(numbers)",
        "pass",
        f"{TOPOLOGY}[fsdp-2]",
    ),
    Bug(
        "FSDP divides gradients by two",
        f"{PARALLEL}/parallelize.py",
        "set_gradient_divide_factor(1.0)",
        "set_gradient_divide_factor(2.0)",
        f"{TOPOLOGY}[fsdp-2]",
    ),
    Bug(
        "gradients summed on the root alone",
        f"{PARALLEL}/parallelize.py",
        'the second one.\n    """\n    for module in model.modules():',
        'the second one.\n    """\n    for module in [model]:',
        f"{TOPOLOGY}[fsdp-2]",
    ),
    Bug(
        "replicas never exchange gradients",
        f"{PARALLEL}/parallelize.py",
        "model.set_requires_all_reduce(last)",
        "model.set_requires_all_reduce(False)",
        f"{TOPOLOGY}[hsdp-2x2]",
    ),
    Bug(
        "clipping by the rank's own norm",
        f"{TRAIN}/step.py",
        "[p.grad for p in parameters if p.grad is not None]",
        "[p.grad.to_local() for p in parameters if p.grad is not None]",
        f"{TOPOLOGY}[fsdp-2]",
    ),
    Bug(
        "every rank reads the same rows",
        f"{PARALLEL}/mesh.py",
        'rows this rank reads."""\n        return self.rank',
        'rows this rank reads."""\n        return 0',
        f"{TOPOLOGY}[fsdp-2]",
    ),
    Bug(
        "labels not shifted",
        f"{TRAIN}/batches.py",
        "targets = tokens[:, 1:]",
        "targets = tokens[:, :-1]",
        "tests/train/test_batches.py::test_a_target_is_not_the_token_after_its_input",
    ),
    Bug(
        "tokens that are not learned count",
        f"{TRAIN}/batches.py",
        ".masked_fill(~loss_mask, IGNORED)",
        "",
        "tests/train/test_batches.py::test_a_token_that_is_not_learned_has_a_target",
    ),
    Bug(
        "initial weights depend on the rank",
        f"{MODEL}/init.py",
        'f"{seed}:{canonical(name)}"',
        'f"{seed + torch.distributed.get_rank()}:{canonical(name)}"',
        "tests/model/test_build.py::test_initial_parameters_depend_on_the_number_of_ranks",
    ),
    Bug(
        "rotary frequencies left as garbage",
        f"{TRAIN}/network.py",
        "    restore_buffers(model)\n",
        "",
        "tests/model/test_build.py"
        "::test_garbage_in_buffers_or_another_forward_than_the_librarys[1-llama]",
    ),
    Bug(
        "data off by one row after a resume",
        f"{TRAIN}/assemble.py",
        "state.rows_read,",
        "state.rows_read + (state.step > 0),",
        f"{RESUME}killed_between_checkpoints_is_not_bitwise_the_undisturbed_one[1]",
    ),
    Bug(
        "data from the start after a resume",
        f"{TRAIN}/assemble.py",
        "state.rows_read,",
        "0,",
        f"{RESUME}killed_between_checkpoints_is_not_bitwise_the_undisturbed_one[1]",
    ),
    Bug(
        "schedule from the start after a resume",
        f"{TRAIN}/trainer.py",
        "self.length.position(self.state.step, self.state.tokens_seen)",
        "self.length.position(len(self.recorder.intervals), self.state.tokens_seen)",
        f"{RESUME}killed_between_checkpoints_is_not_bitwise_the_undisturbed_one[1]",
    ),
    Bug(
        "a checkpoint gets ahead of the metrics",
        f"{TRAIN}/hooks.py",
        "        trainer.report()\n        started = time",
        "        started = time",
        "tests/train/test_resume.py::test_a_checkpoint_is_ahead_of_the_metrics",
    ),
    Bug(
        "optimizer state not saved",
        "platform/ringshard/checkpoint/state.py",
        "if optimizer is not None:",
        "if optimizer is False:",
        f"{RESUME}killed_between_checkpoints_is_not_bitwise_the_undisturbed_one[1]",
    ),
    Bug(
        "evaluation counts the padding rows",
        f"{TRAIN}/evaluation/loss.py",
        "& real[:, None]",
        "",
        "tests/train/test_resume.py::test_evaluation_depends_on_the_number_of_ranks[1]",
    ),
    Bug(
        "a token that is not learned is right",
        "platform/ringshard/model/head.py",
        "(log_likelihood == p.amax(1, keepdim=True)) & ~ignored",
        "p.gather(1, target) == p.amax(1, keepdim=True)",
        "tests/model/test_head.py::test_a_target_that_is_not_the_likeliest_is_a_hit[8]",
    ),
    Bug(
        "token budget not masked",
        f"{TRAIN}/trainer.py",
        "batch, targets = mask_surplus(batch, agreed.counts, budget), budget",
        "targets = budget",
        "tests/parity/test_topology.py"
        "::test_a_token_budget_learns_the_surplus_of_its_last_step[one]",
    ),
    Bug(
        "a stop that one rank is asked for is not taken",
        f"{TRAIN}/agreement.py",
        "dist.all_reduce(self._numbers,",
        "dist.all_reduce(self._numbers[1:],",
        "tests/train/test_agreement.py::test_a_rank_that_is_asked_to_stop_stops_alone[0]",
    ),
    Bug(
        "a gradient that is not finite is applied",
        f"{TRAIN}/step.py",
        "(~finite).to(torch.float32)",
        "(~finite).to(torch.float32) * 0",
        "tests/train/test_step.py::test_a_gradient_that_is_not_finite_changes_the_model[nan]",
    ),
    Bug(
        "a document's last token learns the next one's first",
        f"{DATA}/dataset.py",
        "loss_mask[at] = False",
        "pass",
        "tests/data/test_dataset.py::test_a_document_of_a_row_holds_tokens_of_another[30]",
    ),
    Bug(
        "pieces of a long document share no token",
        f"{DATA}/packing.py",
        "start + seq_len + 1))",
        "start + seq_len))",
        "tests/data/test_packing.py"
        "::test_documents_put_together_are_read_whole_and_each_target_once",
    ),
]
