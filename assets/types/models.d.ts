// The console's models: the API's, with what the console adds to them.

import type {
  Clearance as ApiClearance,
  ClearanceExplanation,
  DeleteAnswers,
  Error as ApiError,
  EventView,
  GetAnswers,
  Health,
  PostAnswers,
  PostBodies,
  Prompt,
  Question,
  Risk,
  Session as ApiSession,
  Step,
  You,
} from "./api";
import type { Payloads } from "./events";

export type { ApiClearance, ApiError, ApiSession, ClearanceExplanation, Prompt, Question, Risk, You };
export type Role = "viewer" | "operator" | "approver" | "admin";
export type PlanStep = Step;

export interface Session extends ApiSession {
  /** The beginning of the last status that its agent reported while the page was open. */
  said: string | null;
}

/** Why, and with which rule, somebody may or may not decide it. */
export type Explanation = Omit<ClearanceExplanation, "clearance">;

export interface Clearance extends ApiClearance {
  /** It came in a list: description and diff are missing. */
  brief?: boolean;
  explained?: Explanation;
}

/** The state of a clearance by one of its events. */
export type ClearanceState = Partial<
  Pick<
    ApiClearance,
    "status" | "decided_by" | "decided_at" | "reason" | "delivery" | "delivered_at" | "delivery_cause" | "outcome"
  >
>;

interface EventOf<Kind, Data> extends Omit<EventView, "kind" | "data"> {
  kind: Kind;
  data: Data;
  /** The seq from which a stream resumes. */
  resume?: number;
}

/** An event. Kinds of a newer daemon come as well: no branch is for them. */
export type LoggedEvent = { [Kind in keyof Payloads]: EventOf<Kind, Payloads[Kind]> }[keyof Payloads];

/** The events that name what they are about in this field. */
export type EventAbout<Field extends string> = Extract<LoggedEvent, { data: { [name in Field]: string } }>;

export interface State {
  /** The seq from which the stream resumes. */
  seq: number;
  /** The log's end when the lists were read. */
  start: number;
  /** The last event of each session. */
  last: Map<string, number>;
  you: You | null;
  version: string;
  bridges: NonNullable<Health["bridges"]>;
  sessions: Map<string, Session>;
  clearances: Map<string, Clearance>;
  questions: Map<string, Question>;
}

/** The ids to look up after an event. */
export type LookUpIds = { session?: string; clearance?: string; question?: string };

/** The pending requests of one session. */
export interface PendingRequests {
  clearances: number;
  questions: number;
  risk: Risk | string | null;
  since: string;
  /** The riskiest request, of these the oldest, on one line. */
  first: string;
}

export type FleetGroup = "failed" | "waiting" | "stuck" | "working" | "idle" | "ended";
export type FleetRow = { session: Session; waits: PendingRequests | undefined; group: FleetGroup };
export type Progress = { done: number; of: number; steps: PlanStep[] };

export type ConnectionState = { name: "connecting" | "live" } | { name: "offline"; again: number };

/** A page: what the address names. */
export interface View {
  element: HTMLElement;
  readonly title: string;
  close(): void;
}

interface ItemBase {
  seq: number;
  at: string;
  events: LoggedEvent[];
  version: number;
}

/** A whole message; `message` is the agent's id of it, and `chunk` says that it came in pieces. */
export interface MessageItem extends ItemBase {
  type: "message" | "thought" | "echo";
  text: string;
  message?: string | null;
  chunk?: boolean;
}

export interface PlanItem extends ItemBase {
  type: "plan";
  steps: PlanStep[];
}

export interface ToolItem extends ItemBase {
  type: "tool";
  title: string;
  status: string;
  tool?: string;
  content?: unknown[];
}

/** A request or a prompt, from its beginning to its end. */
interface JoinedItemBase<Type, Data> extends ItemBase {
  type: Type;
  id: string;
  text: string;
  state: string | null;
  data: Partial<Data>;
  /** A prompt that has left the queue. */
  sent: boolean;
}

export interface ClearanceItem
  extends JoinedItemBase<
    "clearance",
    Payloads["clearance.requested"] & Payloads["clearance.decided"] & { action: string | null }
  > {
  standing: ClearanceState;
  /** Its description and diff are open. */
  opened?: boolean;
  whole?: ApiClearance;
}

export type QuestionItem = JoinedItemBase<"question", Payloads["question.asked"] & Payloads["question.answered"]>;
export type PromptItem = JoinedItemBase<"prompt", Payloads["prompt.queued"]>;
export type JoinedItem = ClearanceItem | QuestionItem | PromptItem;

export interface FactItem extends ItemBase {
  type: "fact";
  kind: string;
}

/** One entry of a session's timeline. */
export type Item = MessageItem | PlanItem | ToolItem | JoinedItem | FactItem;

/** An item without what every item has. */
export type NewItem<Made> = Made extends Item ? Omit<Made, keyof ItemBase> : never;

type PathSegments<Path> = Path extends `${infer First}/${infer Rest}` ? [First, ...PathSegments<Rest>] : [Path];
type Path<Url> = Url extends `${infer Before}?${string}` ? Before : Url;
type MatchesPath<Template, Given> = Template extends [infer T, ...infer MoreT]
  ? Given extends [infer G, ...infer MoreG]
    ? T extends `{${string}}`
      ? MatchesPath<MoreT, MoreG>
      : T extends G
        ? G extends T
          ? MatchesPath<MoreT, MoreG>
          : false
        : false
    : false
  : Given extends []
    ? true
    : false;
type Of<Table, Url> = {
  [Template in keyof Table]: MatchesPath<PathSegments<Template>, PathSegments<Path<Url>>> extends true
    ? Table[Template]
    : never;
}[keyof Table];

/** The answers of the API at an address, and the bodies that it takes. */
export type GetAnswer<Url extends string> = Of<GetAnswers, Url>;
export type PostAnswer<Url extends string> = Of<PostAnswers, Url>;
export type DeleteAnswer<Url extends string> = Of<DeleteAnswers, Url>;
export type PostBody<Url extends string> = [Of<PostBodies, Url>] extends [never]
  ? Record<string, never>
  : Of<PostBodies, Url>;

/** A child of an element; nothing is left out. */
export type Child = string | number | Node | null | undefined | false | Child[];
