"""The pages of a KV cache, with sharing of common prefixes.

The content of a full page is identified by its tokens and by the content before it, so a request finds the pages of any
earlier request with the same prefix. An unused page keeps its content until the page is needed; the least recently used
one is evicted first.

    tokens   a b c d e f g      pages of 3 tokens: (a b c) gets number 1, (d e f) after 1 gets 2, (g) is not full
    tokens   a b c d e h        shares page 1; (d e h) is another content
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

_Content = tuple[int, tuple[int, ...]]
"""The number of the preceding content, 0 for none, and the tokens of the page."""


class Pages:
    """A pool of `count` pages of `size` tokens each."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._empty = list(range(count - 1, -1, -1))
        self._users = [0] * count
        self._unused: OrderedDict[int, None] = OrderedDict()
        self._pages: dict[_Content, int] = {}
        self._contents: dict[int, _Content] = {}
        self._numbers: dict[int, int] = {}
        self._next = 1

    @property
    def free(self) -> int:
        """The number of pages that no request uses."""
        return len(self._empty) + len(self._unused)

    def needed(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def take(self, ids: Sequence[int], tokens: int) -> tuple[list[int], int] | None:
        """Returns pages for `tokens` tokens that begin with `ids`, and the number of tokens of `ids` that the first
        pages hold already; None if too few pages are free. At least one token of `ids` remains to be computed."""
        found = self._find(ids)
        for page in found:
            self._hold(page)
        missing = self.needed(tokens) - len(found)
        if missing > self.free:
            self.release(found)
            return None
        return [*found, *(self._new() for _ in range(missing))], len(found) * self.size

    def fill(self, pages: Sequence[int], ids: Sequence[int], number: int) -> None:
        """Records that page `number` of a request is full. The pages before it must have been recorded."""
        before = self._numbers.get(pages[number - 1], 0) if number else 0
        if (number and not before) or pages[number] in self._contents:
            return
        content = (before, tuple(ids[number * self.size : (number + 1) * self.size]))
        if content not in self._pages:
            self._pages[content] = pages[number]
            self._contents[pages[number]] = content
            self._numbers[pages[number]] = self._next
            self._next += 1

    def release(self, pages: Sequence[int]) -> None:
        """Returns the pages of a request to the pool. The last page becomes the first candidate for eviction, since a
        page is of use only together with those before it."""
        for page in reversed(pages):
            self._users[page] -= 1
            if self._users[page] == 0:
                if page in self._contents:
                    self._unused[page] = None
                else:
                    self._empty.append(page)

    def _find(self, ids: Sequence[int]) -> list[int]:
        found: list[int] = []
        before = 0
        for start in range(0, len(ids) - self.size, self.size):
            page = self._pages.get((before, tuple(ids[start : start + self.size])))
            if page is None:
                break
            found.append(page)
            before = self._numbers[page]
        return found

    def _hold(self, page: int) -> None:
        self._unused.pop(page, None)
        self._users[page] += 1

    def _new(self) -> int:
        if self._empty:
            page = self._empty.pop()
        else:
            page, _ = self._unused.popitem(last=False)
            del self._pages[self._contents.pop(page)], self._numbers[page]
        self._users[page] = 1
        return page
