"""A section of the page: what the navigation has a link to."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from batchjobs.api.page.visitor import Visitor


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`path` is where its link leads. What `is_operators` is of all tenants' work together."""

    title: str
    path: str
    router: APIRouter
    is_operators: bool = False

    def is_open_to(self, visitor: Visitor) -> bool:
        return visitor.is_operator or not self.is_operators
