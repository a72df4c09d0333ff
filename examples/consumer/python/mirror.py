"""A copy of a cluster's objects, made of kbridge's events by the rules of docs/CONSUMERS.md."""


class Mirror:
    """A copy of what one ordered log tells: a stream, or a partition of a topic."""

    def __init__(self):
        self.objects = {}  # that are there, by key
        self.known = {}  # these and those that are gone, by key and uid: what is older can come again
        self.began = {}  # the place of each snapshot's first marker
        self.place = -1  # of the last event

    def apply(self, place, e):
        """Take the event, a dict, at a place of the log."""
        if place <= self.place:
            return  # rule 1: the broker delivers it again
        self.place = place
        kind = e["type"].removeprefix("dev.kbridge.")
        if kind == "snapshot.started":
            self.began.setdefault(e["snapshot"], place)  # it comes again where a restart goes on with it
        elif kind == "snapshot.completed":
            self.sweep(e)
        elif kind.startswith("object."):
            self.change(place, e, kind == "object.deleted")

    def change(self, place, e, deleted):
        key = key_of(e)
        there, known = self.objects.get(key), self.known.get((key, e["uid"]))
        if known:
            known["place"] = place  # a sweep needs it also where the event is passed over
        another = there and there["uid"] != e["uid"]
        if known and is_newer(known, e, deleted) or another and not deleted and is_newer(there, e, deleted):
            return  # rule 2
        new = {"uid": e["uid"], "version": e["resourceversion"], "epoch": e["epoch"], "entry": e.get("entry"), "place": place, "final": False}
        self.known[key, e["uid"]] = new
        if not deleted:  # rule 3
            if another:
                there["body"] = None
            self.objects[key] = new
            new |= {"body": e["data"], "truncated": e.get("truncated", False)}
        else:  # rule 4
            if known and known["epoch"] == e["epoch"] and before(e["resourceversion"], known["version"]):
                new["version"] = known["version"]
            # An id with a version is of an object that may only have left a selection.
            new["final"] = not e["id"].endswith(f".{e['resourceversion']}.deleted")
            if not another:
                self.objects.pop(key, None)

    def sweep(self, e):
        """Rule 5: what is in a snapshot's scope and had no event since it began is not there."""
        began, scope = self.began.get(e["snapshot"]), e["data"]["scope"]
        if began is None:
            return  # it came too late for the beginning

        def gone(key, old):
            namespace, names = key[3], scope.get("namespaces")
            return (
                old["place"] < began
                and key[:3] == key_of(e)[:3]
                and old["entry"] == e.get("entry")
                and e.get("namespace", namespace) == namespace
                and (not names or namespace in names)
                and namespace not in scope.get("excludeNamespaces", [])
            )

        self.known = {at: old for at, old in self.known.items() if not gone(at[0], old)}
        self.objects = {key: old for key, old in self.objects.items() if not gone(key, old)}

    def state(self):
        """Return uid and version by key."""
        return {"/".join(key): {"uid": o["uid"], "version": o["version"]} for key, o in self.objects.items()}


def key_of(e):
    """Name an object by the parts of a Kafka record's key.

    It has no API version and no entry: the same object can be told in another version, and by
    another entry, after a change of the configuration.
    """
    return (e["cluster"], e.get("group", "core"), e["resource"], e.get("namespace", "_"), e.get("name"))


def is_newer(old, e, deleted):
    """Say that the event tells of a state before the one that is known."""
    if e["epoch"] != old["epoch"]:
        return e["epoch"] < old["epoch"]
    if deleted and e.get("inferred"):
        return False  # it has the version that kbridge knew, and is true now
    if e["resourceversion"] == old["version"]:
        return old["final"]
    return before(e["resourceversion"], old["version"])


def before(a, b):
    """Compare two versions of one resource, as numbers; where they are none, nothing is known."""
    return a.isdecimal() and b.isdecimal() and int(a) < int(b)
