"""Judges anyone's block manager; see ``check_block_manager``."""

from .check import check_block_manager
from .contract import ManagerContract, Size
from .protocol import Plan, PoolAdapter, SchedulerAdapter
