"""The event log: every decision that is made durable, in past tense, one frozen class each, a module for each topic.

An event says what was decided, never how to act on it; the fold applies it and messages puts it into words. Each
names its job or host, or is the cluster's own; ``at`` is wall-clock seconds. A type's name and fields are durable:
change one only by a new version (see ``shell/store/codec``).
"""

from __future__ import annotations

from holdfast_controller.core.events.access import AccountsMapped as AccountsMapped
from holdfast_controller.core.events.access import MotdSet as MotdSet
from holdfast_controller.core.events.access import PeopleEvent as PeopleEvent
from holdfast_controller.core.events.access import RoleGranted as RoleGranted
from holdfast_controller.core.events.access import RoleTaken as RoleTaken
from holdfast_controller.core.events.access import SecretRemoved as SecretRemoved
from holdfast_controller.core.events.access import SecretSet as SecretSet
from holdfast_controller.core.events.access import SignInAllowed as SignInAllowed
from holdfast_controller.core.events.access import SignInEnded as SignInEnded
from holdfast_controller.core.events.access import TokenMade as TokenMade
from holdfast_controller.core.events.access import TokenUsed as TokenUsed
from holdfast_controller.core.events.access import UserRemoved as UserRemoved
from holdfast_controller.core.events.access import UserSignedIn as UserSignedIn
from holdfast_controller.core.events.cluster import CertificateEnding as CertificateEnding
from holdfast_controller.core.events.cluster import ClockLeapt as ClockLeapt
from holdfast_controller.core.events.cluster import ClusterNews as ClusterNews
from holdfast_controller.core.events.cluster import ControllerCheckFailed as ControllerCheckFailed
from holdfast_controller.core.events.cluster import ControllerCheckPassed as ControllerCheckPassed
from holdfast_controller.core.events.cluster import MostHostsSilent as MostHostsSilent
from holdfast_controller.core.events.end import CancelRequested as CancelRequested
from holdfast_controller.core.events.end import JobDeleted as JobDeleted
from holdfast_controller.core.events.end import JobEnded as JobEnded
from holdfast_controller.core.events.end import JobEnding as JobEnding
from holdfast_controller.core.events.end import JobPurged as JobPurged
from holdfast_controller.core.events.end import NotificationGivenUp as NotificationGivenUp
from holdfast_controller.core.events.end import OutputArchived as OutputArchived
from holdfast_controller.core.events.end import OutputDeleted as OutputDeleted
from holdfast_controller.core.events.end import PrimaryCompleted as PrimaryCompleted
from holdfast_controller.core.events.end import WorkerEmptied as WorkerEmptied
from holdfast_controller.core.events.end import WorkerFenced as WorkerFenced
from holdfast_controller.core.events.generation import CaughtUp as CaughtUp
from holdfast_controller.core.events.generation import GangLaunched as GangLaunched
from holdfast_controller.core.events.generation import GangStarted as GangStarted
from holdfast_controller.core.events.generation import PreparationNoted as PreparationNoted
from holdfast_controller.core.events.generation import ProgressRecorded as ProgressRecorded
from holdfast_controller.core.events.generation import WorkerLaunched as WorkerLaunched
from holdfast_controller.core.events.generation import WorkerStarted as WorkerStarted
from holdfast_controller.core.events.generation import WorldApart as WorldApart
from holdfast_controller.core.events.hang import CommonCauseNoticed as CommonCauseNoticed
from holdfast_controller.core.events.hang import HangDiagnosed as HangDiagnosed
from holdfast_controller.core.events.hang import HangJudged as HangJudged
from holdfast_controller.core.events.hang import HangNoticed as HangNoticed
from holdfast_controller.core.events.hang import HangOver as HangOver
from holdfast_controller.core.events.hang import HangStuck as HangStuck
from holdfast_controller.core.events.hang import JobHeld as JobHeld
from holdfast_controller.core.events.host import AgentStopped as AgentStopped
from holdfast_controller.core.events.host import GpuCleared as GpuCleared
from holdfast_controller.core.events.host import GpuCondemned as GpuCondemned
from holdfast_controller.core.events.host import HostCheckFailed as HostCheckFailed
from holdfast_controller.core.events.host import HostCheckPassed as HostCheckPassed
from holdfast_controller.core.events.host import HostCordoned as HostCordoned
from holdfast_controller.core.events.host import HostDrained as HostDrained
from holdfast_controller.core.events.host import HostDraining as HostDraining
from holdfast_controller.core.events.host import HostEvent as HostEvent
from holdfast_controller.core.events.host import HostFenced as HostFenced
from holdfast_controller.core.events.host import HostJoined as HostJoined
from holdfast_controller.core.events.host import HostLost as HostLost
from holdfast_controller.core.events.host import HostMeasured as HostMeasured
from holdfast_controller.core.events.host import HostMeasurementBegan as HostMeasurementBegan
from holdfast_controller.core.events.host import HostMeasurementDue as HostMeasurementDue
from holdfast_controller.core.events.host import HostPlaceFreed as HostPlaceFreed
from holdfast_controller.core.events.host import HostRefused as HostRefused
from holdfast_controller.core.events.host import HostRemoved as HostRemoved
from holdfast_controller.core.events.host import HostReturned as HostReturned
from holdfast_controller.core.events.host import HostShutdownBegan as HostShutdownBegan
from holdfast_controller.core.events.host import HostThrottled as HostThrottled
from holdfast_controller.core.events.host import HostUncordoned as HostUncordoned
from holdfast_controller.core.events.host import MaintenanceBegan as MaintenanceBegan
from holdfast_controller.core.events.host import MaintenanceEnded as MaintenanceEnded
from holdfast_controller.core.events.host import MaintenancePlanned as MaintenancePlanned
from holdfast_controller.core.events.injection import FaultInjected as FaultInjected
from holdfast_controller.core.events.injection import FaultNotInjected as FaultNotInjected
from holdfast_controller.core.events.pause import JobPaused as JobPaused
from holdfast_controller.core.events.pause import JobResumed as JobResumed
from holdfast_controller.core.events.pause import JobWarned as JobWarned
from holdfast_controller.core.events.pause import MaintenanceAhead as MaintenanceAhead
from holdfast_controller.core.events.pause import PauseRequested as PauseRequested
from holdfast_controller.core.events.queue import DependencyEnded as DependencyEnded
from holdfast_controller.core.events.queue import JobPlaced as JobPlaced
from holdfast_controller.core.events.queue import JobQueued as JobQueued
from holdfast_controller.core.events.queue import JobSparesChanged as JobSparesChanged
from holdfast_controller.core.events.queue import JobSubmitted as JobSubmitted
from holdfast_controller.core.events.queue import PlacementTried as PlacementTried
from holdfast_controller.core.events.queue import TurnCame as TurnCame
from holdfast_controller.core.events.recovery import AttemptEnded as AttemptEnded
from holdfast_controller.core.events.recovery import CauseFound as CauseFound
from holdfast_controller.core.events.recovery import Failure as Failure
from holdfast_controller.core.events.recovery import LateExitFound as LateExitFound
from holdfast_controller.core.events.recovery import RankExited as RankExited
from holdfast_controller.core.events.recovery import RestartDecided as RestartDecided
from holdfast_controller.core.events.reservations import ReservationBegan as ReservationBegan
from holdfast_controller.core.events.reservations import ReservationEnded as ReservationEnded
from holdfast_controller.core.events.reservations import ReservationMade as ReservationMade
from holdfast_controller.core.events.restore import ClusterReconciliation as ClusterReconciliation
from holdfast_controller.core.events.restore import ClusterRestored as ClusterRestored
from holdfast_controller.core.events.restore import JobCleared as JobCleared
from holdfast_controller.core.events.restore import JobFound as JobFound
from holdfast_controller.core.events.restore import JobUnsure as JobUnsure
from holdfast_controller.core.events.restore import OrphanEvent as OrphanEvent
from holdfast_controller.core.events.restore import OrphanExited as OrphanExited
from holdfast_controller.core.events.restore import OrphanFound as OrphanFound
from holdfast_controller.core.events.restore import OrphanGone as OrphanGone
from holdfast_controller.core.events.restore import OrphanStopRequested as OrphanStopRequested
from holdfast_controller.core.events.restore import ReconciliationEnded as ReconciliationEnded
from holdfast_controller.core.events.schedules import ScheduleCreated as ScheduleCreated
from holdfast_controller.core.events.schedules import ScheduleEvent as ScheduleEvent
from holdfast_controller.core.events.schedules import ScheduleFired as ScheduleFired
from holdfast_controller.core.events.schedules import ScheduleLeftOut as ScheduleLeftOut
from holdfast_controller.core.events.schedules import SchedulePaused as SchedulePaused
from holdfast_controller.core.events.schedules import ScheduleRemoved as ScheduleRemoved
from holdfast_controller.core.events.schedules import ScheduleResumed as ScheduleResumed
from holdfast_controller.core.events.schedules import TemplateCreated as TemplateCreated
from holdfast_controller.core.events.schedules import TemplateEvent as TemplateEvent
from holdfast_controller.core.events.schedules import TemplateRemoved as TemplateRemoved
from holdfast_controller.core.events.shares import GuaranteeSet as GuaranteeSet
from holdfast_controller.core.events.shares import HalfLifeSet as HalfLifeSet
from holdfast_controller.core.events.shares import QuotaSet as QuotaSet
from holdfast_controller.core.events.shares import ShareSet as ShareSet
from holdfast_controller.core.events.slowness import SlowdownNoticed as SlowdownNoticed
from holdfast_controller.core.events.slowness import SlowdownOver as SlowdownOver
from holdfast_controller.core.events.underuse import UnderuseNoticed as UnderuseNoticed
from holdfast_controller.core.events.underuse import UnderuseOver as UnderuseOver

JobEvent = (
    JobSubmitted
    | JobQueued
    | DependencyEnded
    | TurnCame
    | PlacementTried
    | JobPlaced
    | JobSparesChanged
    | PreparationNoted
    | GangLaunched
    | GangStarted
    | RankExited
    | LateExitFound
    | RestartDecided
    | WorkerLaunched
    | WorkerStarted
    | AttemptEnded
    | PauseRequested
    | JobWarned
    | JobPaused
    | JobResumed
    | JobDeleted
    | OutputDeleted
    | JobPurged
    | CauseFound
    | HangNoticed
    | HangDiagnosed
    | HangJudged
    | HangStuck
    | HangOver
    | JobHeld
    | FaultInjected
    | FaultNotInjected
    | CaughtUp
    | ProgressRecorded
    | WorldApart
    | PrimaryCompleted
    | CancelRequested
    | JobEnding
    | OutputArchived
    | WorkerEmptied
    | WorkerFenced
    | JobEnded
    | MaintenanceAhead
    | UnderuseNoticed
    | UnderuseOver
    | SlowdownNoticed
    | SlowdownOver
    | NotificationGivenUp
    | JobFound
    | JobUnsure
    | JobCleared
)
ClusterEvent = (
    CommonCauseNoticed
    | ClusterRestored
    | ReconciliationEnded
    | CertificateEnding
    | MostHostsSilent
    | ControllerCheckFailed
    | ControllerCheckPassed
    | ClockLeapt
    | ShareSet
    | GuaranteeSet
    | QuotaSet
    | HalfLifeSet
    | ReservationMade
    | ReservationBegan
    | ReservationEnded
)
Event = JobEvent | HostEvent | OrphanEvent | PeopleEvent | ClusterEvent | ScheduleEvent | TemplateEvent
