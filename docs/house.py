"""Draws the house, from the imports of coin/ as they stand in its files; none of them is run.

python docs/house.py    renews the picture in docs/design.md
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- house: written by docs/house.py -->\n", "<!-- end of house -->"
DOOR, GROUND = "import coin", "coin/*.py"  # __init__.py, which is a door, and the other files that lie in no folder


def room_of(parts: tuple[str, ...], coin: Path) -> str:
    """Of a module below coin: its folder. A name that is no file is one that __init__.py gives away."""
    if parts and (coin / parts[0]).is_dir():
        return f"coin/{parts[0]}"
    return GROUND if parts and (coin / f"{parts[0]}.py").is_file() and parts[0] != "__init__" else DOOR


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """The modules below coin that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "coin":
            names = [f"coin.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}: a relative import; write coin.… so that it can be read")
            names = [node.module or ""]
        else:
            continue
        yield from (tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == "coin")


def imports(root: Path = ROOT) -> dict[str, set[str]]:
    """{room: the rooms it imports}."""
    coin = root / "coin"
    found: dict[str, set[str]] = {}
    for file in sorted(coin.rglob("*.py")):
        room = room_of(file.relative_to(coin).with_suffix("").parts, coin)
        found.setdefault(room, set()).update(room_of(other, coin) for other in imported(file))
    return {room: others - {room} for room, others in found.items()}


def floors(graph: dict[str, set[str]]) -> list[list[str]]:
    """Rooms by how many stand below them, lowest first; those that import one another share a floor."""

    def below(room: str) -> set[str]:
        seen: set[str] = set()
        waiting = [room]
        while waiting:
            for other in graph.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reach = {room: below(room) for room in graph}
    height: dict[str, int] = {}

    def climb(room: str) -> int:
        if room not in height:
            lower = [other for other in reach[room] if room not in reach[other]]
            height[room] = 1 + max((climb(other) for other in lower), default=0)
        return height[room]

    levels = sorted({climb(room) for room in graph})
    return [sorted(room for room in graph if height[room] == level) for level in levels]


def drawing(root: Path = ROOT) -> str:
    graph = imports(root)
    names = {room: room.replace("coin/*.py", "ground").replace("import coin", "door").split("/")[-1] for room in graph}
    lines = ["flowchart TD"]
    for floor in reversed(floors(graph)):
        lines += [f'    {names[room]}["{room}"]' for room in floor]
    for floor in reversed(floors(graph)):
        for room in floor:
            lines += [f"    {names[room]} --> {names[other]}" for other in sorted(graph[room])]
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def renewed(text: str) -> str:
    """The page with the picture of today between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no place for the picture: {BEGIN.strip()} … {END}")
    return before + begin + drawing() + end + after


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
