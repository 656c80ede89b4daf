"""Relocatable ELF files for AArch64, laid out in memory and linked."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

_ALLOCATED, _NO_BITS, _SYMBOLS, _RELOCATIONS, _UNDEFINED = 2, 8, 2, 4, 0
_UNWINDING = ".eh_frame"

_ABSOLUTE_64, _PAGE, _ADD, _BRANCHES = 257, 275, 277, (282, 283)
_BY_SLOT = {311: _PAGE, 312: 286}
"""Relocations of a place that has the symbol's address (GOT), and those that they are for it."""
_MOVES = {264: 0, 266: 16, 268: 32, 269: 48}
"""Relocations that put 16 bits of an address into a register, and which of them."""
_LOADS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
"""Relocations of loads and stores, and by how many bits their offset is shifted."""


@dataclass(slots=True)
class Section:
    name: str
    kind: int
    flags: int
    size: int
    link: int
    target: int
    """The section that relocations are for."""
    alignment: int
    content: bytes
    address: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """Linked code and data, which belong at an address."""

    content: bytes
    symbols: dict[str, int]


def link(file: bytes, base: int, undefined: Callable[[str], int]) -> Image:
    """Lay the file's sections out from `base` on, and put addresses into them.

    Args:
        undefined: gives the address of a symbol that the file does not define.

    Raises:
        NotImplementedError: a relocation of a kind that is not known here.
    """
    sections = _sections(file)
    content = _laid_out(sections, base)
    (table,) = (section for section in sections if section.kind == _SYMBOLS)
    symbols = [_symbol(sections, table, at, undefined) for at in range(0, len(table.content), 24)]
    content.extend(bytes(-len(content) % 8))
    slots = base + len(content)
    content.extend(b"".join(struct.pack("<Q", address) for _, address in symbols))
    for section in (section for section in sections if section.kind == _RELOCATIONS):
        target = sections[section.target]
        if not target.address or target.name == _UNWINDING:
            continue
        for offset, info, added in struct.iter_unpack("<QQq", section.content):
            number, kind = info >> 32, info & 0xFFFFFFFF
            value = symbols[number][1] + added
            if kind in _BY_SLOT:
                kind, value = _BY_SLOT[kind], slots + 8 * number
            _relocate(content, target.address + offset - base, base, kind, value)
    return Image(bytes(content), dict(symbols))


def _sections(file: bytes) -> list[Section]:
    start, count, names = (struct.unpack_from(f, file, at)[0] for f, at in _HEADER)
    rows = [struct.unpack_from("<IIQQQQIIQQ", file, start + 64 * i) for i in range(count)]
    strings = file[rows[names][4] :]
    return [
        Section(
            name=_text(strings, name), kind=kind, flags=flags, size=size, link=link, target=info,
            alignment=alignment, content=b"" if kind == _NO_BITS else file[at : at + size],
        )
        for name, kind, flags, _, at, size, link, info, alignment, _ in rows
    ]  # fmt: skip


_HEADER = (("<Q", 0x28), ("<H", 0x3C), ("<H", 0x3E))
"""Where sections begin, how many there are, and which one has their names."""


def _laid_out(sections: list[Section], base: int) -> bytearray:
    content = bytearray()
    for section in sections:
        if section.flags & _ALLOCATED:
            content.extend(bytes(-len(content) % max(1, section.alignment)))
            section.address = base + len(content)
            content.extend(section.content or bytes(section.size))
    return content


def _symbol(
    sections: list[Section], table: Section, at: int, undefined: Callable[[str], int]
) -> tuple[str, int]:
    name_at, _, _, home, value, _ = struct.unpack_from("<IBBHQQ", table.content, at)
    name = _text(sections[table.link].content, name_at)
    if home == _UNDEFINED:
        return name, undefined(name) if name else 0
    return name, value + (sections[home].address if home < len(sections) else 0)


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


def _relocate(content: bytearray, at: int, base: int, kind: int, value: int) -> None:
    place = base + at
    if kind == _ABSOLUTE_64:
        struct.pack_into("<Q", content, at, value)
        return
    (word,) = struct.unpack_from("<I", content, at)
    if kind in _BRANCHES:
        word |= ((value - place) >> 2) & 0x3FFFFFF
    elif kind == _PAGE:
        pages = (value >> 12) - (place >> 12)
        word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind == _ADD:
        word |= (value & 0xFFF) << 10
    elif kind in _MOVES:
        word |= (value >> _MOVES[kind] & 0xFFFF) << 5
    elif kind in _LOADS:
        word |= (value & 0xFFF) >> _LOADS[kind] << 10
    else:
        raise NotImplementedError(f"relocation {kind} of AArch64")
    struct.pack_into("<I", content, at, word)
