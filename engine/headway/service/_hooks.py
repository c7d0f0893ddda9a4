"""The calls to a type's mutate and validate hooks. They are only called for a payload that decodes."""

from __future__ import annotations

from typing import Any

from headway._functions import answer_problem
from headway._safe_text import error_text, repr_text
from headway.resource import Resource, ResourceType, pb, resource_id
from headway.rpc import HandlerFault
from headway.service._refusals import invalid

Type = ResourceType[Any]


def mutated(type: Type, resource: pb.Resource) -> pb.Resource:
    """Return the result of the mutate hook, or the resource itself if the type has no such hook."""
    mutate = type.hooks.mutate
    if mutate is None:
        return resource
    view: Resource[Any] = type.view(resource)
    try:
        _check_answer(mutate(view))
        return view.message()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # `SystemExit` in a hook must not end the server, which serves others too.
        raise _failed("mutate", type, error) from error


def validate(type: Type, resource: pb.Resource) -> None:
    """Raise INVALID_ARGUMENT if the validate hook raises ValueError."""
    hook = type.hooks.validate
    if hook is None:
        return
    try:
        # The hook gets its own view, so it cannot change what is stored: that is the result of mutate.
        answer: object = hook(type.view(resource))
        _check_answer(answer)
        if answer is not None and answer is not True:
            # A hook that rejects by its return value would otherwise let everything through.
            raise TypeError(f"it returned {repr_text(answer)}: a validate hook refuses by raising ValueError(sentence)")
    except ValueError as error:
        raise invalid(f"{resource_id(resource.id)}: {error_text(error)}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # `SystemExit` in a hook must not end the server, which serves others too.
        raise _failed("validate", type, error) from error


def _check_answer(answer: object) -> None:
    """Raise TypeError if the return value shows that the hook did not run (and so checked nothing)."""
    if answer is not None and (problem := answer_problem(answer)):
        raise TypeError(problem)


def _failed(hook: str, type: Type, error: BaseException) -> HandlerFault:
    # The error's text may contain what only the program and its operator should know.
    return HandlerFault(f"the {hook} hook of {type.name} failed", error)
