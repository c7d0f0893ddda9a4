"""The state of a modeled cluster, which its API servers share: objects, and the log of commits."""

from __future__ import annotations

import datetime
import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import trio

from headway.testing.kubernetes._fields import Difference, FieldConflicts, Managed, Manager, compare, copied
from headway.testing.kubernetes._kinds import BUILT_IN, Kind, custom_kinds
from headway.testing.kubernetes._refused import conflict, invalid, not_found, of, other_uid
from headway.testing.kubernetes._values import Cause, required, wrong

Object = dict[str, Any]

_EPOCH = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC).timestamp()
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?\Z")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
"""The finalizers with which a deletion waits for the garbage collector."""

_UNTYPED = ("FieldValueTypeInvalid", "FieldValueDuplicate")
_REPLICAS = ("f:spec", "f:replicas")
_BY_SERVER = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Name(NamedTuple):
    """The name of an object in the store: in any version of its type."""

    group: str
    plural: str
    namespace: str
    name: str


class Target(NamedTuple):
    """What a request is about."""

    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def stored(self) -> Name:
        """The name in the store."""
        return Name(self.kind.group, self.kind.plural, self.namespace, self.name)


class Options(NamedTuple):
    """The options of a write."""

    manager: str = "headway"
    dry_run: bool = False
    force: bool = False


class Commit(NamedTuple):
    """A change of an object. ``object`` is None for its deletion, ``before`` for its creation."""

    revision: int
    name: Name
    object: Object | None
    before: Object | None


class ModelCluster:
    """The objects of a cluster, in memory. `ModelServer` serves them.

    A uid depends only on the name of its object and on how often that name was created, so that runs can be compared.

    Args:
        now: the time in seconds since 1970. Default: Trio's clock, from 2030 on.

    Attributes:
        revision: the resourceVersion of the last commit, of any type.
        created: how often each name was created.
        any_namespace: True if a namespace that does not exist is created with its first object.
        on_commit: called with each commit, before any stream has it.
        compacted: the revision below which the history is gone, except in the caches of servers.
    """

    def __init__(self, *, now: Callable[[], float] = lambda: _EPOCH + trio.current_time()) -> None:
        self._now = now
        self.created = Counter[Name]()
        self._dry_runs = 0
        self.any_namespace = False
        self.on_commit: Callable[[Commit], object] = lambda _: None
        self.revision = 1
        self.compacted = 0
        self.kinds = {(each.group, each.version, each.plural): each for each in BUILT_IN}
        self.objects: dict[Name, Object] = {}
        self.log: list[Commit] = []
        self.moved = trio.Event()
        self.on_restore: list[Callable[[], None]] = []
        for name in ("default", "kube-system"):
            self.create(Target(self.kind("", "Namespace"), ""), {"metadata": {"name": name}}, Options())

    # Reads.

    def kind(self, group: str, kind: str) -> Kind:
        """Return a type by its group and kind."""
        return next(each for each in self.kinds.values() if (each.group, each.kind) == (group, kind))

    def read(self, target: Target) -> Object:
        """Return an object. Raises Refused if it is absent."""
        found = self.objects.get(target.stored)
        if found is None:
            raise not_found(target.kind, target.name)
        return found

    def at(self, revision: int, kind: Kind) -> dict[Name, Object]:
        """Return the objects of a type at a revision, in order."""
        found: dict[Name, Object] = {}
        if revision >= self.revision:
            found = {name: each for name, each in self.objects.items() if name[:2] == (kind.group, kind.plural)}
        else:
            for commit in self.log:
                if commit.revision <= revision and commit.name[:2] == (kind.group, kind.plural):
                    if commit.object is None:
                        found.pop(commit.name, None)
                    else:
                        found[commit.name] = commit.object
        return dict(sorted(found.items()))

    def time(self) -> str:
        """Return the time, as objects have it."""
        return datetime.datetime.fromtimestamp(int(self._now()), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def restore(self, revision: int, bump: int = 0) -> None:
        """Put the state of a revision back in place of the present one. The servers start anew.

        Args:
            bump: the number of revisions to skip, as ``etcdutl snapshot restore --bump-revision --mark-compacted``. No
                watch can go on from before it then.
        """
        self.log = [each for each in self.log if each.revision <= revision]
        self.objects = {}
        for each in self.log:
            self.objects.pop(each.name, None)
            if each.object is not None:
                self.objects[each.name] = each.object
        self.revision = revision + bump
        for restored in self.on_restore:
            restored()

    # Writes.

    def create(self, target: Target, body: Object, options: Options, managed: Managed | None = None) -> Object:
        """Create an object, and return it."""
        kind = target.kind
        made = self._checked(target, body)
        meta = made["metadata"]
        target = target._replace(name=meta.get("name") or "")
        if kind.namespaced:
            self._check_namespace(target)
        if meta.pop("resourceVersion", ""):
            raise of(500, "InternalError", "resourceVersion should not be set on objects to be created")
        for name in _BY_SERVER:
            meta.pop(name, None)
        made = kind.stored(made, [])
        meta = made["metadata"]
        meta |= {"uid": self._uid(target.stored, options.dry_run), "creationTimestamp": self.time()}
        if kind.generation:
            meta["generation"] = 1
        if managed is None:
            managed = Managed()
            self._manage(managed, target, options.manager, compare(kind.skeleton(), _unmanaged(made), kind.shape))
        made["metadata"] = _replaced(meta, "managedFields", managed.entries() or None)
        if kind.status:
            made.pop("status", None)
            made = made if kind.schema is not None else kind.stored(made, [])
        self._validate(target, made, None)
        if (there := self.objects.get(target.stored)) is not None:
            text = f'{kind.named} "{target.name}" already exists'
            deleting = "object is being deleted: " if "deletionTimestamp" in there["metadata"] else ""
            raise of(409, "AlreadyExists", deleting + text, kind, target.name)
        return made if options.dry_run else self._commit(target.stored, made)

    def update(
        self, target: Target, make: Callable[[Object], Object], options: Options, *, patch: bool = True
    ) -> Object:
        """Change an object by a function, and return it.

        Args:
            patch: False for a PUT, which has its uid as a precondition.
        """
        kind, old = target.kind, self.read(target)
        made = self._checked(target, make(copied(old)))
        asked = made["metadata"].get("managedFields") if not target.subresource else None
        if not patch and (uid := made["metadata"].get("uid", "")) and uid != old["metadata"]["uid"]:
            raise other_uid(kind, target.name, uid, old["metadata"]["uid"])
        return self._update(target, old, made, options, Managed(asked or old["metadata"].get("managedFields") or ()))

    def apply(self, target: Target, config: Object, options: Options) -> Object:
        """Apply a configuration, and return the object. It is created if it is absent."""
        kind, old = target.kind, self.objects.get(target.stored)
        config = self._checked(target, config)
        self._check_applied(kind, config)
        if config["metadata"].get("managedFields"):
            raise of(400, "BadRequest", "metadata.managedFields must be nil")
        uid = config["metadata"].get("uid")
        if old is None and target.subresource:
            raise not_found(kind, target.name)
        if old is None and uid:
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(kind, target.name, text)
        managed = Managed(() if old is None else old["metadata"].get("managedFields") or ())
        live = kind.skeleton() if old is None else _unmanaged(old)
        if not managed.sets:
            self._manage(managed, target, "before-first-apply", compare(kind.skeleton(), live, kind.shape))
        manager = Manager(options.manager, "Apply", "", target.subresource)
        reset = kind.reset(target.subresource)
        try:
            merged = managed.apply(
                live, config, kind.shape, manager, kind.api_version, self.time(), reset, options.force
            )
        except FieldConflicts as error:
            causes = [Cause("FieldManagerConflict", _holder(each), path) for each, path in error.causes]
            texts = [f"{each.message}: {each.field}" for each in causes]
            text = f"Apply failed with {len(texts)} conflict{'s' * (len(texts) > 1)}: {', '.join(texts)}"
            raise of(409, "Conflict", text, causes=causes) from None
        merged = copied(merged)
        if old is None:
            merged["metadata"].pop("resourceVersion", None)
            return self.create(target, merged, options, managed)
        return self._update(target, old, merged, options, managed, applied=True)

    def _update(
        self, target: Target, old: Object, made: Object, options: Options, managed: Managed, *, applied: bool = False
    ) -> Object:
        kind, meta, known = target.kind, made["metadata"], old["metadata"]
        version = meta.get("resourceVersion", "")
        meta["uid"] = meta.get("uid") or known["uid"]
        for name in _BY_SERVER:
            meta.pop(name, None)
            meta |= {name: known[name]} if name in known else {}
        if not version and kind.put_needs_version:
            raise invalid(kind, target.name, [wrong("metadata.resourceVersion", 0)])
        if version and version != known["resourceVersion"]:
            raise conflict(kind, target.name)
        made = kind.stored(made, [])
        if target.subresource == "status":
            status = made.get("status")
            if kind.schema is None:
                # Annotations and finalizers of built-in types can be changed here, too.
                made["metadata"] |= {"labels": known.get("labels")}
                made = kind.stored({**made, "spec": copied(old.get("spec"))}, [])
            else:
                made = copied(old)
            made = _replaced(made, "status", status)
        elif kind.status and target.subresource != "scale":
            made = _replaced(made, "status", old.get("status"))
        # Fields without managers stay so until the first apply. A Scale leaves out zero: that counts as a removal.
        tracked = managed.sets
        difference = compare(_unmanaged(old), _unmanaged(made), kind.shape)
        if target.subresource == "scale":
            tracked = {each: fields for each, fields in tracked.items() if _REPLICAS in fields}
            if not made["spec"]["replicas"]:
                difference = Difference(set(), set(), difference.modified)
        if tracked and not applied:
            self._manage(managed, target, options.manager, difference)
        meta = made["metadata"] = _replaced(made["metadata"], "managedFields", managed.entries() or None)
        meta["resourceVersion"] = known["resourceVersion"]
        if kind.generation and target.subresource != "status" and _content(kind, made) != _content(kind, old):
            meta["generation"] = known["generation"] + 1
        self._validate(target, made, old)
        if _untimed(made) == _untimed(old):
            return old
        if options.dry_run:
            return made
        if "deletionTimestamp" in meta and not finalizers_of(made):
            self.remove(target.stored, old)
            return made
        return self._commit(target.stored, made)

    def delete(self, target: Target, options: Mapping[str, Any]) -> Object:
        """Delete an object, or mark it. Return the marked object, or the status of its deletion."""
        kind, old = target.kind, self.read(target)
        meta, dry_run = old["metadata"], "All" in (options.get("dryRun") or ())
        wanted = options.get("preconditions") or {}
        if wanted.get("uid", meta["uid"]) != meta["uid"]:
            raise other_uid(kind, target.name, wanted["uid"], meta["uid"])
        if wanted.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
            text = f"Precondition failed: ResourceVersion in precondition: {wanted['resourceVersion']}"
            raise conflict(kind, target.name, text)
        finalizers = list(meta.get("finalizers") or ())
        if policy := options.get("propagationPolicy"):
            own = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy, [])
            finalizers = [each for each in finalizers if each not in (FOREGROUND, ORPHAN)] + own
        made = copied(old)
        made["metadata"] = _replaced(made["metadata"], "finalizers", finalizers or None)
        if finalizers_of(made):
            if "deletionTimestamp" not in meta:
                made["metadata"] |= {"deletionTimestamp": self.time(), "deletionGracePeriodSeconds": 0}
                if kind.generation:
                    made["metadata"]["generation"] += 1
                made = kind.stored(made, [])
            return made if dry_run or made == old else self._commit(target.stored, made)
        if not dry_run:
            self.remove(target.stored, old)
        details = {"name": target.name, "kind": kind.plural, "uid": meta["uid"]}
        details |= {"group": kind.group} if kind.group else {}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _manage(self, managed: Managed, target: Target, manager: str, difference: Difference) -> None:
        kind, subresource = target.kind, target.subresource
        writer = Manager(manager, "Update", kind.api_version, subresource)
        managed.update(difference, writer, kind.api_version, self.time(), kind.reset(subresource))

    def _checked(self, target: Target, body: Object) -> Object:
        """Return a copy of a request's object, whose names are those of the request."""
        kind = target.kind
        made: Object = copied(body)
        meta = made.setdefault("metadata", {})
        for key, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if (made.setdefault(key, wanted if kind.schema is None else "")) != wanted:
                text = f"the {key} in the data ({made[key]}) does not match the expected one ({wanted})"
                raise of(400, "BadRequest", text)
        if kind.namespaced and meta.setdefault("namespace", target.namespace) != target.namespace:
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise of(400, "BadRequest", text)
        if target.name and meta.setdefault("name", target.name) != target.name:
            text = f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})"
            raise of(400, "BadRequest", text)
        return made

    def _check_applied(self, kind: Kind, config: Object) -> None:
        """Raise Refused if a configuration does not have the types of the schema. A server fails then by status 500."""
        wrong: list[str] = []
        if kind.schema is not None:
            kind.stored(config, wrong)
            wrong += [each.field for each in kind.causes(config) if each.reason in _UNTYPED]
        if wrong:
            raise of(500, "", f"failed to create typed patch object: .{wrong[0]} does not fit its schema")

    def _check_namespace(self, target: Target) -> None:
        namespaces = self.kind("", "Namespace")
        wanted = Target(namespaces, "", target.namespace)
        found = self.objects.get(wanted.stored)
        if found is None and self.any_namespace:
            found = self.create(wanted, {"metadata": {"name": target.namespace}}, Options())
        if found is None:
            raise not_found(namespaces, target.namespace)
        if "deletionTimestamp" in found["metadata"]:
            text = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            causes = [
                Cause("NamespaceTerminating", f"namespace {target.namespace} is being terminated", "metadata.namespace")
            ]
            head = f'{target.kind.named} "{target.name}" is forbidden: '
            raise of(403, "Forbidden", head + text, target.kind, target.name, causes)

    def _validate(self, target: Target, made: Object, old: Object | None) -> None:
        meta, name = made["metadata"], target.name
        causes: list[Cause] = []
        if not _NAME.match(name):
            causes.append(wrong("metadata.name", name) if name else required("metadata.name"))
        causes += [wrong("metadata.labels", each) for each in meta.get("labels", {}).values() if not _LABEL.match(each)]
        if old is not None and meta["uid"] != old["metadata"]["uid"]:
            causes.append(wrong("metadata.uid", meta["uid"]))
        if old is not None and "deletionTimestamp" in old["metadata"]:
            new = set(meta.get("finalizers", ())) - set(old["metadata"].get("finalizers", ()))
            if new:
                text = f"Forbidden: no new finalizers can be added if the object is being deleted, found {sorted(new)}"
                causes.append(Cause("FieldValueForbidden", text, "metadata.finalizers"))
        causes += target.kind.causes(made, old)
        if causes:
            raise invalid(target.kind, name, causes)

    def _commit(self, name: Name, made: Object) -> Object:
        self.revision += 1
        made["metadata"]["resourceVersion"] = str(self.revision)
        before = self.objects.get(name)
        self.created[name] += before is None
        self.objects[name] = made
        self._note(Commit(self.revision, name, made, before))
        return made

    def remove(self, name: Name, old: Object) -> None:
        """Remove an object at once, whatever its finalizers."""
        self.revision += 1
        del self.objects[name]
        self._note(Commit(self.revision, name, None, old))

    def _note(self, commit: Commit) -> None:
        self.log.append(commit)
        if commit.name.plural == "customresourcedefinitions":
            self._define(commit)
        self.on_commit(commit)
        self.wake()

    def wake(self) -> None:
        """Wake the streams."""
        self.moved.set()
        self.moved = trio.Event()

    def _define(self, commit: Commit) -> None:
        """Serve the types of a definition that has come, and remove those of one that has gone, with their objects."""
        for each in custom_kinds(commit.before or {"spec": {"versions": ()}}):
            self.kinds.pop((each.group, each.version, each.plural), None)
            if commit.object is None:
                for name, old in [
                    (name, old) for name, old in self.objects.items() if name[:2] == (each.group, each.plural)
                ]:
                    self.remove(name, old)
        if commit.object is not None:
            commit.object["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
            self.kinds |= {(each.group, each.version, each.plural): each for each in custom_kinds(commit.object)}

    def _uid(self, name: Name, dry_run: bool) -> str:
        self._dry_runs += dry_run
        of = repr((*name, self.created[name], self._dry_runs if dry_run else 0))
        return str(uuid.UUID(bytes=hashlib.blake2b(of.encode(), digest_size=16).digest(), version=4))


def _unmanaged(object: Object) -> Object:
    """Return an object without its managers."""
    return {**object, "metadata": _replaced(object["metadata"], "managedFields", None)}


def _untimed(object: Object) -> tuple[Object, list[Object]]:
    """Return an object and its managers, without the times of the managers: these alone are no change."""
    return _unmanaged(object), [{**each, "time": ""} for each in object["metadata"].get("managedFields") or ()]


def _replaced(object: Object, key: str, value: Any) -> Object:
    """Return an object with another value of a field, or without it."""
    rest = {name: each for name, each in object.items() if name != key}
    return rest if value is None else {**rest, key: value}


def _content(kind: Kind, object: Object) -> Object:
    """Return the fields whose change raises an object's generation."""
    without = ("metadata", "status") if kind.status else ("metadata",)
    found = {key: each for key, each in object.items() if key not in without}
    # The annotations of a Deployment count, too.
    return {**found, "": object["metadata"].get("annotations")} if kind.kind == "Deployment" else found


def finalizers_of(object: Object) -> Iterable[str]:
    """Return the finalizers for which an object's deletion waits."""
    own = object["metadata"].get("finalizers") or ()
    return own or (object["spec"].get("finalizers") or () if object["kind"] == "Namespace" else ())


def _holder(manager: Manager) -> str:
    text = f'conflict with "{manager.name}"'
    text += f' with subresource "{manager.subresource}"' if manager.subresource else ""
    return f"{text} using {manager.version}" if manager.operation == "Update" else text
